// SPDX-License-Identifier: Apache-2.0
#include "worker/server/images/segment_images.h"

#include <algorithm>

#include "base/base64.h"
#include "worker/image/png_writer.h"
#include "worker/server/http/api_error.h"
#include "worker/server/images/image_request.h"
#include "worker/server/images/segmentation.h"
#include "worker/server/tasks/forward_runner.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// The ways to segment an image, of which the first is that of transformers' pipeline.
const std::vector<std::string> subtasks{"panoptic", "instance", "semantic"};
constexpr int64_t max_compared = int64_t{4} << 30;  ///< pixels of all images, times the masks that may be there

struct SegmentOptions {
  bool by_class = false;
  SegmentLimits limits;
};

void read_options(Fields& fields, SegmentOptions& options) {
  const std::string subtask = fields.text("subtask").value_or(subtasks[0]);
  if (std::find(subtasks.begin(), subtasks.end(), subtask) == subtasks.end())
    throw bad_field("subtask", json_excerpt(subtask), "panoptic, instance or semantic");
  options.by_class = subtask == "semantic";
  SegmentLimits& limits = options.limits;
  limits.threshold = read_share(fields, "threshold", limits.threshold);
  limits.mask_threshold = read_share(fields, "mask_threshold", limits.mask_threshold);
  limits.overlap_mask_area_threshold =
      read_share(fields, "overlap_mask_area_threshold", limits.overlap_mask_area_threshold);
}

/// Refuses images whose masks would take minutes to compare.
void check_size(const ServerContext& context, const ImageRequest& request, const SegmentOptions& options) {
  const Capabilities& can = context.capabilities;
  const int64_t masks =
      std::max<int64_t>(1, options.by_class ? static_cast<int64_t>(can.labels.size()) : can.image_tokens);
  int64_t pixels = 0;
  for (const PreparedImage& image : request.images) pixels += image.width * image.height;
  if (pixels > max_compared / masks)
    throw ApiError(413, "image_too_large",
                   "the images have " + std::to_string(pixels) + " pixels; at most " +
                       std::to_string(max_compared / masks) + " in one request with " + std::to_string(masks) +
                       " masks each, send fewer or smaller images",
                   "inputs");
}

json segments(const ServerContext& context, const Arrays& outputs, const PreparedImage& image,
              const SegmentOptions& options) {
  const std::string& name = context.capabilities.masks;
  const auto &logits = float_values(outputs, "logits", 3), &masks = float_values(outputs, name, 4);
  const std::vector<int64_t>& shape = outputs.at(name).shape;
  const ObjectMasks given{logits, masks, outputs.at("logits").shape[2], shape[2], shape[3]};
  json all = json::array();
  const Segmentation found = options.by_class ? segment_classes(given, image.height, image.width)
                                              : segment_objects(given, options.limits, image.height, image.width);
  for (const Segment& segment : found.segments)
    all.push_back({{"score", options.by_class ? json() : json(segment.score)},
                   {"label", class_label(context, segment.label)},
                   {"mask", base::encode_base64(image::encode_png(found.mask(segment), image.width, image.height))}});
  return all;
}

}  // namespace

http::Response segment(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  SegmentOptions options;
  const ImageRequest request = read_images(context, call, [&](Fields& fields) { read_options(fields, options); });
  check_size(context, request, options);
  json all = json::array();
  for (const PreparedImage& image : request.images) {  // one by one: masks of all would be in memory at once
    std::vector<ForwardBatch> batches;
    batches.push_back({{{"pixel_values", image.pixels}}, {"logits", context.capabilities.masks}});
    all.push_back(segments(context, run_forward_batches(context, call, std::move(batches))[0], image, options));
  }
  return json_response(request.single ? all[0] : all);
}

Operation describe_segment(const ServerContext& context) {
  const json found =
      schema::list(schema::object({{"score", schema::or_null(schema::real()), true},
                                   {"label", schema::text(), true},
                                   {"mask", schema::text("A PNG in base64: 255 where the segment is, else 0"), true}}));
  return images_operation(
      context, "Image segmentation",
      {{"subtask", schema::one_of(subtasks, "Segments are objects, or classes (semantic); default panoptic")},
       {"threshold", schema::number(0, 1, "Objects with this score or less are left out; default 0.9")},
       {"mask_threshold", schema::number(0, 1, "Of a mask times its score: pixels that count; default 0.5")},
       {"overlap_mask_area_threshold",
        schema::number(0, 1, "Objects that win this share of their pixels or less are left out; default 0.5")}},
      found);
}

}  // namespace pm::server
