// See task_request.h.
#include "worker/server/task_request.h"

#include "worker/base/error.h"
#include "worker/server/api_error.h"
#include "worker/server/numbers.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// The file in a base64 text or a data: URL.
std::string file_of(const json& value, const std::string& field) {
  const std::string allowed = "a PNG or JPEG in base64, or a URL of the form data:image/png;base64,...";
  if (!value.is_string()) throw bad_field(field, shown(value), allowed);
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with("http://") || text.starts_with("https://"))
    throw ApiError(400, "invalid_value", field + " is a web address, and this server fetches nothing; send the image itself: " + allowed, field);
  if (text.starts_with("data:")) {
    const size_t comma = text.find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64")) throw bad_field(field, shown(value), allowed);
    text.remove_prefix(comma + 1);
  }
  std::string file;
  if (text.empty() || !from_base64(text, file)) throw bad_field(field, shown(value), allowed);
  return file;
}

void check_takes_images(const Abilities& can, const std::string& field) {
  if (!can.takes_images) throw ApiError(400, "invalid_value", field + " is an image, and " + can.architecture + " takes texts only", field);
  if (!can.images)
    throw ApiError(400, "no_image_processor", "the checkpoint has no preprocessor_config.json that says how images are prepared; send pixel_values to POST /forward", field);
}

}  // namespace

void refuse_unless_served(const Serving& serving, const Call& call) {
  const Abilities& can = serving.abilities;
  if (can.serves(call.access->route)) return;
  std::string routes;
  for (const auto& route : can.routes()) routes += (routes.empty() ? "" : ", ") + route;
  throw ApiError(404, "not_served", call.access->route + " is not served by this model, " + (can.architecture.empty() ? serving.model : can.architecture) + " of task " +
                                        can.task + "; it serves: " + routes);
}

json task_body(const Serving& serving, const Call& call) {
  refuse_unless_served(serving, call);
  json object = parse_object(call.request.body);
  const auto found = object.find("parameters");
  if (found == object.end()) return object;
  const json parameters = *found;
  object.erase("parameters");
  if (parameters.is_null()) return object;
  if (!parameters.is_object()) throw bad_field("parameters", shown(parameters), "an object of options");
  for (const auto& [name, value] : parameters.items()) {
    if (name == "parameters") throw ApiError(400, "unknown_field", "parameters.parameters is no field of this request", "parameters.parameters");
    if (object.contains(name)) throw ApiError(400, "invalid_value", name.substr(0, 60) + " is given twice, also in parameters; leave one out", name.substr(0, 60));
    object[name] = value;
  }
  return object;
}

bool common_fields(Fields& fields, const Serving& serving) {
  const auto asked = fields.text("model");
  if (asked && *asked != serving.model)
    throw ApiError(404, "model_not_found", "model is " + shown(*asked) + "; this server has: " + json(serving.model).dump(), "model");
  fields.text("user");   // says who asks; changes nothing
  fields.find("parameters");   // task_body has laid it over the rest
  return fields.boolean("truncate").value_or(false);
}

Operation task_operation(const Serving& serving, std::string summary, schema::Properties own, json reply, json example,
                         const std::vector<std::vector<std::string>>& required) {
  own.push_back({"model", schema::described(schema::one_of({serving.model}), "The served name")});
  own.push_back({"user", schema::text("Says who asks; changes nothing")});
  own.push_back({"truncate", schema::boolean("Cuts a text that is longer than the model takes; else it is refused")});
  schema::Properties optional = own;
  for (auto& property : optional) property.required = false;
  own.push_back({"parameters", schema::object(optional, "Where Hugging Face's clients put options: laid over the fields beside it; none may be given twice")});
  Operation made;
  made.summary = std::move(summary);
  made.body = schema::object(own);
  if (!required.empty()) made.body["anyOf"] = json::array();
  for (const auto& names : required) made.body["anyOf"].push_back({{"required", names}});
  made.example = std::move(example);
  made.reply = std::move(reply);
  made.refusals = kModelRefusals;
  return made;
}

json texts_schema(const std::string& description, size_t most) {
  return schema::any({schema::text("", 1), schema::list(schema::text("", 1), 1, most)}, description);
}

json image_schema() {
  return {{"type", "string"}, {"contentEncoding", "base64"}, {"minLength", 1}, {"description", "A PNG or JPEG in base64, plain or as a data: URL"}};
}

json one_or_list(json one) {
  json many = schema::list(one);
  return schema::any({std::move(one), std::move(many)});
}

const json& required(Fields& fields, const std::string& name, const std::string& allowed) {
  const json* value = fields.find(name);
  if (!value) throw ApiError(400, "missing_field", name + " is missing; allowed: " + allowed, name);
  return *value;
}

std::string text_of(const json& value, const std::string& field) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) throw bad_field(field, shown(value), "a text");
  return value;
}

std::vector<std::string> texts_of(const json& value, const std::string& field, bool& single, size_t most) {
  single = value.is_string();
  if (single) return {text_of(value, field)};
  if (!value.is_array() || value.empty()) throw bad_field(field, shown(value), "a text or an array of texts");
  if (value.size() > most) throw ApiError(413, "too_many_inputs", field + " has " + std::to_string(value.size()) + " texts; at most " + std::to_string(most) + " in one request", field);
  std::vector<std::string> texts;
  for (const json& one : value) texts.push_back(text_of(one, field + "[" + std::to_string(texts.size()) + "]"));
  return texts;
}

http::Response json_response(const json& body, int status) {
  http::Response response;
  response.status = status;
  response.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return response;
}

void refuse_texts(const Serving& serving, const std::string& field) {
  throw ApiError(400, "invalid_value", field + " is text, and " + serving.abilities.architecture + " takes images only: {\"image\": base64}", field);
}

Array pixels_of_file(const Serving& serving, std::string_view file, const std::string& field) {
  check_takes_images(serving.abilities, field);
  const auto place = serving.decoding();   // each may hold a few times the largest image
  try {
    return (*serving.abilities.images)(image::open(file));
  } catch (const Error& error) {
    if (error.reason == "ImageTooLarge") throw ApiError(413, "image_too_large", field + ": " + error.what(), field);
    if (error.kind == ErrorKind::Request) throw ApiError(400, "invalid_image", field + ": " + error.what(), field);
    throw;
  }
}

Array pixels_of(const Serving& serving, const json& value, const std::string& field) {
  check_takes_images(serving.abilities, field);
  return pixels_of_file(serving, file_of(value, field), field);
}

Array stacked(const std::vector<Array>& images, const std::string& field) {
  Array all{images.at(0).shape, std::vector<float>()};
  all.shape[0] = static_cast<int64_t>(images.size());
  auto& values = std::get<std::vector<float>>(all.values);
  for (const Array& image : images) {
    if (!std::equal(image.shape.begin() + 1, image.shape.end(), images[0].shape.begin() + 1))
      throw ApiError(400, "invalid_value", field + " has images that differ in size after preparation; send them one by one", field);
    const auto& own = std::get<std::vector<float>>(image.values);
    values.insert(values.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace pm::server
