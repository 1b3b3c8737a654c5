// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/detect.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/forward_runner.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr double default_threshold = 0.5;  // that of transformers' pipeline

/// The pixel_values of an image, and its size before it was prepared.
struct Prepared {
  Array pixels;
  int64_t width = 0, height = 0;
};

double read_threshold(Fields& fields) {
  const json* value = fields.find("threshold");
  if (!value) return default_threshold;
  const bool fits = value->is_number() && value->get<double>() >= 0 && value->get<double>() <= 1;
  if (!fits) throw bad_field("threshold", json_excerpt(*value), "a number from 0 to 1");
  return value->get<double>();
}

Prepared prepare(const ServerContext& context, std::string_view file, const std::string& field) {
  Prepared image;
  image.pixels = decode_image_file(context, file, field, [&](const image::Image& opened) {
    image.width = opened.width;
    image.height = opened.height;
  });
  return image;
}

/// Returns the corners of a box in whole pixels, cut off as transformers does. `box` is [center x, center y, width,
/// height] as shares of the image.
json corners(const float* box, const Prepared& image) {
  const auto pixels = [](float share, int64_t side) { return static_cast<int64_t>(share * static_cast<float>(side)); };
  return {{"xmin", pixels(box[0] - 0.5F * box[2], image.width)},
          {"ymin", pixels(box[1] - 0.5F * box[3], image.height)},
          {"xmax", pixels(box[0] + 0.5F * box[2], image.width)},
          {"ymax", pixels(box[1] + 0.5F * box[3], image.height)}};
}

/// Returns the objects of one image: of each query the most likely class that is not the last one, "no object".
json objects(const Arrays& outputs, const Prepared& image, const std::vector<std::string>& labels, double threshold) {
  const auto &logits = float_values(outputs, "logits", 3), &boxes = float_values(outputs, "pred_boxes", 3);
  const auto classes = static_cast<size_t>(outputs.at("logits").shape[2]);
  json found = json::array();
  for (size_t query = 0; query * classes < logits.size(); ++query) {
    const std::vector<double> shares = softmax(std::span(logits).subspan(query * classes, classes));
    const auto best = std::max_element(shares.begin(), shares.end() - 1);
    if (!(*best > threshold)) continue;
    const auto number = static_cast<size_t>(best - shares.begin());
    found.push_back({{"score", *best},
                     {"label", number < labels.size() ? labels[number] : "LABEL_" + std::to_string(number)},
                     {"box", corners(boxes.data() + 4 * query, image)}});
  }
  return found;
}

/// Runs each image alone: in a batch it would be padded, which changes what the convolutions see at its edges.
json detect_objects(const ServerContext& context, const RoutedRequest& call, const std::vector<Prepared>& images,
                    double threshold) {
  std::vector<ForwardBatch> batches;
  for (const Prepared& image : images) batches.push_back({{{"pixel_values", image.pixels}}, {"logits", "pred_boxes"}});
  json all = json::array();
  for (const Arrays& outputs : run_forward_batches(context, call, std::move(batches)))
    all.push_back(objects(outputs, images[all.size()], context.capabilities.labels, threshold));
  return all;
}

}  // namespace

http::Response detect(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  if (call.request.header("content-type").starts_with("image/")) {
    refuse_unless_served(context, call);
    const Prepared image = prepare(context, call.request.body, "the body");
    return json_response(detect_objects(context, call, {image}, default_threshold)[0]);
  }
  const json object = parse_route_body(context, call);
  Fields fields(object);
  read_common_fields(fields, context);
  const json& inputs = require_field(fields, "inputs", images_allowed);
  const double threshold = read_threshold(fields);
  fields.refuse_others();
  bool single = false;
  std::vector<Prepared> images;
  for (const ImageFile& file : parse_image_files(context, inputs, "inputs", single))
    images.push_back(prepare(context, file.bytes, file.field));
  const json all = detect_objects(context, call, images, threshold);
  return json_response(single ? all[0] : all);
}

Operation describe_detect(const ServerContext& context) {
  const json side = schema::integer(-(1 << 30), INT64_MAX, "In pixels of the image; a box may reach over its edge"),
             box = schema::object(
                 {{"xmin", side, true}, {"ymin", side, true}, {"xmax", side, true}, {"ymax", side, true}}),
             found = schema::list(schema::object(
                 {{"score", schema::real(), true}, {"label", schema::text(), true}, {"box", box, true}}));
  Operation made =
      task_operation(context, "Object detection",
                     {{"inputs", images_schema(), true},
                      {"threshold", schema::number(0, 1, "Objects with this score or less are left out; default 0.5")}},
                     one_or_list(found), nullptr);
  for (const char* type : {"image/png", "image/jpeg"}) made.bodies[type] = {{"type", "string"}, {"format", "binary"}};
  return made;
}

}  // namespace pm::server
