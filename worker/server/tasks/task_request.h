// SPDX-License-Identifier: Apache-2.0
// Parsers and schemas of request fields that the task routes share.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/http/json_body.h"
#include "worker/server/http/json_response.h"
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

constexpr size_t max_inputs = 2048;  ///< inputs in one request, as in OpenAI's API
constexpr size_t max_images = 64;    ///< images in one request; all of them are decoded and in memory at once

/// Reads the fields that every route has: "model", "user", "include_usage", "parameters" and "truncate". Returns
/// "truncate". `adapter` receives the adapter that "model" names, or nullptr for the base model. Throws ApiError: 404
/// for another model's name, 400 for an adapter on a route that takes none.
bool read_common_fields(Fields&, const ServerContext&, std::shared_ptr<const engine::Adapter>* adapter = nullptr);

/// Describes a route that takes the fields `own` and the common ones, all of which may also stand in "parameters".
/// `required` lists sets of fields, one of which must be complete; empty: the required fields of `own`.
Operation task_operation(const ServerContext&, std::string summary, schema::Properties own, nlohmann::json reply,
                         nlohmann::json example, const std::vector<std::vector<std::string>>& required = {});
/// The schemas of what parse_texts and decode_image accept.
nlohmann::json texts_schema(const std::string& description, size_t max_count = max_inputs);
nlohmann::json image_schema();
/// Returns the schema of a reply that is `one` for one input and an array of it for an array of inputs.
nlohmann::json one_or_list(nlohmann::json one);

/// Returns the field `name`. Throws ApiError 400 when it is absent. The texts are views because GCC 14 takes the result
/// of a function that is given a temporary string for a part of that string.
const nlohmann::json& require_field(Fields&, std::string_view name, std::string_view allowed);
/// Returns `value`, which must be a text that is not empty.
std::string parse_text(const nlohmann::json& value, const std::string& field);
/// Parses one text or a list of at most `max_count` texts. `single` becomes true when the value is one text.
std::vector<std::string> parse_texts(const nlohmann::json& value, const std::string& field, bool& single,
                                     size_t max_count = max_inputs);

/// Throws ApiError 400: the model takes images only.
[[noreturn]] void refuse_text_input(const ServerContext&, const std::string& field);

/// Decodes one image, in base64 or as a data: URL, into pixel_values [1, 3, height, width]. Throws ApiError: 400 for
/// data that is not an image or when the model takes no images, 413 for an image that is too large.
/// The bytes of an image file, and its field in messages.
struct ImageFile {
  std::string bytes, field;
};
/// Parses an image or an array of 1 to max_images; each is a text, or an object with the field "image". `single` says
/// which it was.
std::vector<ImageFile> parse_image_files(const ServerContext&, const nlohmann::json& value, const std::string& field,
                                         bool& single);
/// Likewise, and prepares the images.
std::vector<Array> parse_images(const ServerContext&, const nlohmann::json& value, const std::string& field,
                                bool& single);
/// The schema of what parse_images accepts, and in words.
nlohmann::json images_schema();
inline constexpr const char* images_allowed = "an image in base64, {\"image\": base64}, or an array of these";
Array decode_image(const ServerContext&, const nlohmann::json& value, const std::string& field);
/// Decodes the bytes of an image file in the same way; `opened` gets the image before its preparation.
Array decode_image_file(const ServerContext&, std::string_view file, const std::string& field,
                        const std::function<void(const image::Image&)>& opened = {});
/// The rows and columns of patches of an image of any size.
struct PatchGridSize {
  int64_t down = 0, across = 0;
};
/// Returns those of the image of a file, of which the header is read alone. Throws as decode_image_file().
PatchGridSize patch_grid_of_file(const ServerContext&, std::string_view file, const std::string& field);
/// Decodes the bytes of an image file for a model that reads images of any size: pixel_values with image_grid_thw, or
/// with the input of sizes.
Arrays decode_image_patches(const ServerContext&, std::string_view file, const std::string& field);
/// Returns the file of a data: or file: URL, as parse_image_files does.
std::string read_image_url(const ServerContext&, const std::string& url, const std::string& field);
/// Concatenates arrays of one image each to [images, ...]. Throws ApiError 400 when their sizes differ.
Array stack_images(const std::vector<Array>& images, const std::string& field);

}  // namespace pm::server
