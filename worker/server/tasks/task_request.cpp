// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/task_request.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/base64.h"
#include "worker/base/error.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/percent_encoding.h"
#include "worker/server/serving/model_schema.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr uintmax_t max_media_file = uintmax_t{64} << 20;

/// Returns the contents of file://PATH, which must lie in the folder that the server offers.
std::string read_media_file(const ServerContext& context, std::string_view url, const std::string& field) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& why) {
    throw ApiError(400, "invalid_value", field + " is the file " + json_excerpt(json(url)) + ", " + why, field);
  };
  if (context.media_folder.empty())
    refuse("and this server reads none; send the image itself, or start the server with --media-folder");
  std::error_code failed;
  const fs::path folder = fs::canonical(context.media_folder, failed),
                 file = failed ? fs::path() : fs::canonical(percent_decode(url.substr(7)), failed);
  const bool inside =
      !failed && std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
  if (!inside || !fs::is_regular_file(file, failed)) refuse("which is no file in the folder that this server offers");
  if (const uintmax_t size = fs::file_size(file, failed); failed || size > max_media_file)
    refuse("which has more than " + std::to_string(max_media_file >> 20) + " MiB");
  std::ifstream stream(file, std::ios::binary);
  std::string contents(std::istreambuf_iterator<char>(stream), {});
  if (!stream || contents.empty()) refuse("which cannot be read, or is empty");
  return contents;
}

/// Returns what an http(s) URL names, if the server fetches from its host.
std::string fetch(const ServerContext& context, const std::string& url, const std::string& field) {
  if (!context.fetch_media)
    throw ApiError(400, "invalid_value",
                   field +
                       " is a URL, and this server fetches nothing; send the image itself in base64, or start "
                       "the server with --media-host",
                   field);
  try {
    return context.fetch_media(url);
  } catch (const Error& error) {
    if (error.reason != Reason::InvalidRequest) throw;
    throw ApiError(400, "invalid_value", field + " is the URL " + json_excerpt(json(url)) + ": " + error.what(), field);
  }
}

/// Returns the file in a base64 text or a data: URL, or the one that a file: or http(s) URL names.
std::string decode_file(const ServerContext& context, const json& value, const std::string& field) {
  const std::string allowed = "a PNG, JPEG or WebP in base64, or a URL of the form data:image/png;base64,...";
  if (!value.is_string()) throw bad_field(field, json_excerpt(value), allowed);
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with("file://")) return read_media_file(context, text, field);
  if (text.starts_with("http://") || text.starts_with("https://")) return fetch(context, std::string(text), field);
  if (text.starts_with("data:")) {
    const size_t comma = text.find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64"))
      throw bad_field(field, json_excerpt(value), allowed);
    text.remove_prefix(comma + 1);
  }
  std::optional<std::string> file = base::decode_base64(text);
  if (text.empty() || !file) throw bad_field(field, json_excerpt(value), allowed);
  return *std::move(file);
}

void check_takes_images(const Capabilities& can, const std::string& field) {
  if (!can.takes_images && !can.prompt_images)
    throw ApiError(400, "invalid_value", field + " is an image, and " + can.architecture + " takes texts only", field);
  if (!can.images)
    throw ApiError(400, "no_image_processor",
                   "the checkpoint has no preprocessor_config.json, which defines the preprocessing of images; send "
                   "pixel_values to POST /forward",
                   field);
}

}  // namespace

bool read_common_fields(Fields& fields, const ServerContext& context, std::shared_ptr<const engine::Adapter>* adapter) {
  if (const auto name = fields.text("model")) {
    const auto named = context.names.adapter(*name);
    if (named && !adapter)
      throw ApiError(400, "invalid_value",
                     "model is the adapter " + json_excerpt(*name) + ", and this route takes the base model only",
                     "model");
    if (adapter) *adapter = named;
  }
  fields.boolean("include_usage");  // some gateways set it in every request; has no effect
  fields.text("user");              // identifies the end user; has no effect
  fields.find("parameters");        // parse_route_body has merged it
  return fields.boolean("truncate").value_or(false);
}

Operation task_operation(const ServerContext& context, std::string summary, schema::Properties own, json reply,
                         json example, const std::vector<std::vector<std::string>>& required) {
  own.push_back({"model", model_schema(context.names)});
  own.push_back({"include_usage", schema::boolean("Has no effect")});
  own.push_back({"user", schema::text("Identifies the end user; has no effect")});
  own.push_back(
      {"truncate", schema::boolean("Truncate texts that exceed the model's maximum length instead of refusing them")});
  schema::Properties optional = own;
  for (auto& property : optional) property.required = false;
  own.push_back({"parameters", schema::object(optional,
                                              "Options as Hugging Face's clients send them. They are merged with the "
                                              "fields beside it; a field may stand in one "
                                              "place only")});
  Operation made;
  made.summary = std::move(summary);
  made.body = schema::object(own);
  if (!required.empty()) made.body["anyOf"] = json::array();
  for (const auto& names : required) made.body["anyOf"].push_back({{"required", names}});
  made.example = std::move(example);
  made.reply = std::move(reply);
  made.error_statuses = model_error_statuses;
  return made;
}

json texts_schema(const std::string& description, size_t max_count) {
  return schema::any({schema::text("", 1), schema::list(schema::text("", 1), 1, max_count)}, description);
}

json image_schema() {
  return {{"type", "string"},
          {"contentEncoding", "base64"},
          {"minLength", 1},
          {"description", "A PNG, JPEG or WebP in base64, plain or as a data: URL"}};
}

json one_or_list(json one) {
  json many = schema::list(one);
  return schema::any({std::move(one), std::move(many)});
}

const json& require_field(Fields& fields, std::string_view field, std::string_view allowed) {
  const std::string name(field);
  const json* value = fields.find(name);
  if (!value) throw ApiError(400, "missing_field", name + " is missing; allowed: " + std::string(allowed), name);
  return *value;
}

std::string parse_text(const json& value, const std::string& field) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    throw bad_field(field, json_excerpt(value), "a text");
  return value;
}

std::vector<std::string> parse_texts(const json& value, const std::string& field, bool& single, size_t max_count) {
  single = value.is_string();
  if (single) return {parse_text(value, field)};
  if (!value.is_array() || value.empty()) throw bad_field(field, json_excerpt(value), "a text or an array of texts");
  if (value.size() > max_count)
    throw ApiError(413, "too_many_inputs",
                   field + " has " + std::to_string(value.size()) + " texts; at most " + std::to_string(max_count) +
                       " in one request",
                   field);
  std::vector<std::string> texts;
  for (const json& one : value) texts.push_back(parse_text(one, field + "[" + std::to_string(texts.size()) + "]"));
  return texts;
}

void refuse_text_input(const ServerContext& context, const std::string& field) {
  throw ApiError(
      400, "invalid_value",
      field + " is text, and " + context.capabilities.architecture + " takes images only: {\"image\": base64}", field);
}

namespace {

/// Returns what `read` makes of the processor of images. Its refusals name the field.
template <typename Read>
auto with_processor(const ServerContext& context, const std::string& field, Read read) {
  check_takes_images(context.capabilities, field);
  try {
    return read(*context.capabilities.images);
  } catch (const Error& error) {
    if (error.reason == Reason::ImageTooLarge)
      throw ApiError(413, "image_too_large", field + ": " + error.what(), field);
    if (error.kind == ErrorKind::Request) throw ApiError(400, "invalid_image", field + ": " + error.what(), field);
    throw;
  }
}

}  // namespace

Array decode_image_file(const ServerContext& context, std::string_view file, const std::string& field,
                        const std::function<void(const image::Image&)>& opened) {
  return with_processor(context, field, [&](const image::Processor& processor) {
    const auto decoder = context.acquire_decoder();  // bounds memory: a decoder may hold a few times the largest image
    const image::Image image = image::open(file);
    if (opened) opened(image);
    return processor(image);
  });
}

PatchGridSize patch_grid_of_file(const ServerContext& context, std::string_view file, const std::string& field) {
  return with_processor(context, field, [&](const image::Processor& processor) {
    const image::Sides sides = image::sides_of(file);
    const auto [down, across] = processor.patch_grid(sides.width, sides.height);
    return PatchGridSize{down, across};
  });
}

Arrays decode_image_patches(const ServerContext& context, std::string_view file, const std::string& field) {
  return with_processor(context, field, [&](const image::Processor& processor) {
    const auto decoder = context.acquire_decoder();
    if (const std::string& sizes = context.capabilities.image_sizes; !sizes.empty()) {
      Array whole = processor(image::open(file));
      const std::vector<int64_t> sides{whole.shape.at(2), whole.shape.at(3)};
      return Arrays{{"pixel_values", std::move(whole)}, {sizes, {{1, 2}, sides}}};
    }
    image::PatchedImage image = processor.patched(image::open(file));
    return Arrays{{"pixel_values", std::move(image.patches)},
                  {"image_grid_thw", {{1, 3}, std::vector<int64_t>{1, image.down, image.across}}}};
  });
}

std::string read_image_url(const ServerContext& context, const std::string& url, const std::string& field) {
  check_takes_images(context.capabilities, field);
  return decode_file(context, url, field);
}

Array decode_image(const ServerContext& context, const json& value, const std::string& field) {
  check_takes_images(context.capabilities, field);
  return decode_image_file(context, decode_file(context, value, field), field);
}

std::vector<ImageFile> parse_image_files(const ServerContext& context, const json& value, const std::string& field,
                                         bool& single) {
  check_takes_images(context.capabilities, field);
  single = !value.is_array();
  const json list = single ? json::array({value}) : value;
  if (list.empty() || list.size() > max_images)
    throw ApiError(
        list.empty() ? 400 : 413, "too_many_inputs",
        field + " has " + std::to_string(list.size()) + " images; allowed: 1 to " + std::to_string(max_images), field);
  std::vector<ImageFile> files;
  for (const json& one : list) {
    const std::string place = single ? field : field + "[" + std::to_string(files.size()) + "]";
    const bool object = one.is_object() && one.size() == 1 && one.contains("image");
    files.push_back({decode_file(context, object ? one["image"] : one, place), place});
  }
  return files;
}

std::vector<Array> parse_images(const ServerContext& context, const json& value, const std::string& field,
                                bool& single) {
  std::vector<Array> images;
  for (const ImageFile& file : parse_image_files(context, value, field, single))
    images.push_back(decode_image_file(context, file.bytes, file.field));
  return images;
}

json images_schema() {
  const json image = schema::any({image_schema(), schema::object({{"image", image_schema(), true}})});
  return schema::any({image, schema::list(image, 1, max_images)});
}

Array stack_images(const std::vector<Array>& images, const std::string& field) {
  Array all{images.at(0).shape, std::vector<float>()};
  all.shape[0] = static_cast<int64_t>(images.size());
  auto& values = std::get<std::vector<float>>(all.values);
  for (const Array& image : images) {
    if (!std::equal(image.shape.begin() + 1, image.shape.end(), images[0].shape.begin() + 1))
      throw ApiError(400, "invalid_value",
                     field + " has images that differ in size after preparation; send them one by one", field);
    const auto& own = std::get<std::vector<float>>(image.values);
    values.insert(values.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace pm::server
