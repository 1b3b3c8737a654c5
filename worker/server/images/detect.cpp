// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/detect.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "worker/server/images/image_request.h"
#include "worker/server/tasks/forward_runner.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr double default_threshold = 0.5;  // that of transformers' pipeline

/// Returns the corners of a box in whole pixels, cut off as transformers does. `box` is [center x, center y, width,
/// height] as shares of the image.
json corners(const float* box, const PreparedImage& image) {
  const auto pixels = [](float share, int64_t side) { return static_cast<int64_t>(share * static_cast<float>(side)); };
  return {{"xmin", pixels(box[0] - 0.5F * box[2], image.width)},
          {"ymin", pixels(box[1] - 0.5F * box[3], image.height)},
          {"xmax", pixels(box[0] + 0.5F * box[2], image.width)},
          {"ymax", pixels(box[1] + 0.5F * box[3], image.height)}};
}

/// Returns the objects of one image: of each query the most likely class that is not the last one, "no object".
json objects(const ServerContext& context, const Arrays& outputs, const PreparedImage& image, double threshold) {
  const auto &logits = float_values(outputs, "logits", 3), &boxes = float_values(outputs, "pred_boxes", 3);
  const auto classes = static_cast<size_t>(outputs.at("logits").shape[2]);
  json found = json::array();
  for (size_t query = 0; query * classes < logits.size(); ++query) {
    const std::vector<double> shares = softmax(std::span(logits).subspan(query * classes, classes));
    const auto best = std::max_element(shares.begin(), shares.end() - 1);
    if (!(*best > threshold)) continue;
    const auto number = static_cast<size_t>(best - shares.begin());
    found.push_back(
        {{"score", *best}, {"label", class_label(context, number)}, {"box", corners(boxes.data() + 4 * query, image)}});
  }
  return found;
}

/// Runs each image alone: in a batch it would be padded, which changes what the convolutions see at its edges.
json detect_objects(const ServerContext& context, const RoutedRequest& call, const std::vector<PreparedImage>& images,
                    double threshold) {
  std::vector<ForwardBatch> batches;
  for (const PreparedImage& image : images)
    batches.push_back({{{"pixel_values", image.pixels}}, {"logits", "pred_boxes"}});
  json all = json::array();
  for (const Arrays& outputs : run_forward_batches(context, call, std::move(batches)))
    all.push_back(objects(context, outputs, images[all.size()], threshold));
  return all;
}

}  // namespace

http::Response detect(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  double threshold = default_threshold;
  const ImageRequest request = read_images(
      context, call, [&](Fields& fields) { threshold = read_share(fields, "threshold", default_threshold); });
  const json all = detect_objects(context, call, request.images, threshold);
  return json_response(request.single ? all[0] : all);
}

Operation describe_detect(const ServerContext& context) {
  const json side = schema::integer(-(1 << 30), INT64_MAX, "In pixels of the image; a box may reach over its edge"),
             box = schema::object(
                 {{"xmin", side, true}, {"ymin", side, true}, {"xmax", side, true}, {"ymax", side, true}}),
             found = schema::list(schema::object(
                 {{"score", schema::real(), true}, {"label", schema::text(), true}, {"box", box, true}}));
  return images_operation(
      context, "Object detection",
      {{"threshold", schema::number(0, 1, "Objects with this score or less are left out; default 0.5")}}, found);
}

}  // namespace pm::server
