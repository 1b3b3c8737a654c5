// SPDX-License-Identifier: Apache-2.0
// Segments of an image, made of the classes and the masks of objects as transformers' image processor of DETR does it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace pm::server {

/// What a model says of one image.
struct ObjectMasks {
  std::span<const float> logits;  ///< [objects, classes]; the last class is "no object"
  std::span<const float> masks;   ///< [objects, height, width], before the sigmoid
  int64_t classes = 0, height = 0, width = 0;

  size_t objects() const { return classes > 0 ? logits.size() / static_cast<size_t>(classes) : 0; }
};

struct SegmentLimits {
  double threshold = 0.9;                    ///< objects with this score or less are left out
  double mask_threshold = 0.5;               ///< of a mask times its score: pixels from here on are the object's
  double overlap_mask_area_threshold = 0.5;  ///< the share of these pixels that an object has to win
};

struct Segment {
  size_t label = 0;
  double score = 0;     ///< 0 where segments are classes
  uint32_t number = 0;  ///< of its pixels
};

struct Segmentation {
  std::vector<uint32_t> numbers;  ///< [height, width] of the image: the segment, or one that is left out
  std::vector<Segment> segments;

  /// Returns 255 for the pixels of a segment and 0 for others [height, width]. Masks of all would be large together.
  std::vector<uint8_t> mask(const Segment&) const;
};

/// Returns the objects of an image of `height` x `width` pixels, in the order of the model's: each pixel belongs to the
/// object whose mask times its score is highest there (post_process_panoptic_segmentation without classes to fuse, and
/// post_process_instance_segmentation, which make the same of DETR's outputs).
Segmentation segment_objects(const ObjectMasks&, const SegmentLimits&, int64_t height, int64_t width);

/// Returns the classes of an image that have a pixel, by number: each pixel belongs to the class with the highest sum
/// of masks, weighted by the objects' shares of the class (post_process_semantic_segmentation).
Segmentation segment_classes(const ObjectMasks&, int64_t height, int64_t width);

}  // namespace pm::server
