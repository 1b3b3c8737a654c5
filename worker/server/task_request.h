// What the task routes share in reading their bodies.
#pragma once
#include <string>
#include <vector>

#include "worker/server/completions.h"
#include "worker/server/json_body.h"
#include "worker/server/operation.h"

namespace pm::server {

constexpr size_t kInputs = 2048;     ///< of one request, as OpenAI's
constexpr size_t kImages = 64;       ///< of one request: each is decoded and held

/// The body as one object: "parameters", where Hugging Face's clients put options, is laid over it. Throws ApiError 404 when this model does
/// not serve the route, 404 for another model's name.
nlohmann::json task_body(const Serving&, const Call&);
/// The same for routes whose body is no JSON.
void refuse_unless_served(const Serving&, const Call&);

/// Reads "model", "user" and "truncate", which every route has, as has "parameters". True when inputs may be cut.
bool common_fields(Fields&, const Serving&);

/// A route's description: `own` fields and the common ones, which may all stand in "parameters" too. `required`: sets of fields of which one
/// has to be there whole; empty: the required ones of `own`.
Operation task_operation(const Serving&, std::string summary, schema::Properties own, nlohmann::json reply, nlohmann::json example,
                         const std::vector<std::vector<std::string>>& required = {});
/// Schemas of what texts_of, and pixels_of read.
nlohmann::json texts_schema(const std::string& description, size_t most = kInputs);
nlohmann::json image_schema();
/// A list of one or several such replies: one input gives `one`, an array of inputs an array of them.
nlohmann::json one_or_list(nlohmann::json one);

/// A required field.
const nlohmann::json& required(Fields&, const std::string& name, const std::string& allowed);
/// A text that is not empty.
std::string text_of(const nlohmann::json& value, const std::string& field);
/// One text or a list of them; `single` says which. At most `most`.
std::vector<std::string> texts_of(const nlohmann::json& value, const std::string& field, bool& single, size_t most = kInputs);

http::Response json_response(const nlohmann::json& body, int status = 200);

/// Where the model has none of these.
[[noreturn]] void refuse_texts(const Serving&, const std::string& field);

/// Decodes one image, plain base64 or a data: URL, and makes pixel_values [1, 3, height, width] of it. Throws ApiError: 400 for what is no
/// image, 413 for one that is too large, 400 when the model takes none.
Array pixels_of(const Serving&, const nlohmann::json& value, const std::string& field);
/// The same for the bytes of a file.
Array pixels_of_file(const Serving&, std::string_view file, const std::string& field);
/// [images, ...] of arrays of one image each. Throws ApiError 400 when their sizes differ.
Array stacked(const std::vector<Array>& images, const std::string& field);

}  // namespace pm::server
