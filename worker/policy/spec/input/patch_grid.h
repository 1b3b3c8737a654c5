// SPDX-License-Identifier: Apache-2.0
// Images of any size as rows of patches.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The patches of images of any size (Wang et al., "Qwen2-VL", 2024). A request has those of all its images one behind
/// another, squares of merge x merge patches at a time, and the rows and columns of patches of each image; or whole
/// images, of which they are cut. A patch is [channels, frames, height, width], or without frames.
struct PatchGrid {
  int64_t merge = 1;   ///< side of a square in patches
  std::string sizes;   ///< what a request calls height and width in pixels [images, 2] of its images, which it has
                       ///< whole, padded to one size; empty: it has patches
  int64_t window = 0;  ///< side in squares of the windows within which layers may attend; 0: there are none
  std::optional<Param> positions;  ///< [side x side, hidden], resampled to the rows and columns of each image; linear,
                                   ///< with the corners aligned

  void collect(ParamCollector& all) const { all.add(positions); }
};

}  // namespace pm::policy
