// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/image_request.h"

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;

PreparedImage prepare(const ServerContext& context, std::string_view file, const std::string& field) {
  PreparedImage image;
  image.pixels = decode_image_file(context, file, field, [&](const image::Image& opened) {
    image.width = opened.width;
    image.height = opened.height;
  });
  return image;
}

}  // namespace

ImageRequest read_images(const ServerContext& context, const RoutedRequest& call,
                         const std::function<void(Fields&)>& read_options) {
  ImageRequest request;
  if (call.request.header("content-type").starts_with("image/")) {
    refuse_unless_served(context, call);
    request.single = true;
    request.images.push_back(prepare(context, call.request.body, "the body"));
    return request;
  }
  const json object = parse_route_body(context, call);
  Fields fields(object);
  read_common_fields(fields, context);
  const json& inputs = require_field(fields, "inputs", images_allowed);
  read_options(fields);
  fields.refuse_others();
  for (const ImageFile& file : parse_image_files(context, inputs, "inputs", request.single))
    request.images.push_back(prepare(context, file.bytes, file.field));
  return request;
}

double read_share(Fields& fields, const char* name, double absent) {
  const json* value = fields.find(name);
  if (!value) return absent;
  const bool fits = value->is_number() && value->get<double>() >= 0 && value->get<double>() <= 1;
  if (!fits) throw bad_field(name, json_excerpt(*value), "a number from 0 to 1");
  return value->get<double>();
}

std::string class_label(const ServerContext& context, size_t number) {
  const std::vector<std::string>& labels = context.capabilities.labels;
  return number < labels.size() ? labels[number] : "LABEL_" + std::to_string(number);
}

Operation images_operation(const ServerContext& context, std::string summary, schema::Properties options, json reply) {
  options.insert(options.begin(), {"inputs", images_schema(), true});
  Operation made =
      task_operation(context, std::move(summary), std::move(options), one_or_list(std::move(reply)), nullptr);
  for (const char* type : {"image/png", "image/jpeg"}) made.bodies[type] = {{"type", "string"}, {"format", "binary"}};
  return made;
}

}  // namespace pm::server
