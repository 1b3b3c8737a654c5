// SPDX-License-Identifier: Apache-2.0
// The errors of refused images.
#pragma once
#include <string>

#include "worker/base/error.h"
#include "worker/image/image.h"

namespace pm::image {

inline Error refused(const std::string& why) { return Error(Reason::ImageRefused, "the image cannot be read: " + why); }

/// Throws Error{ImageTooLarge} when width x height is more than the limit, "ImageRefused" when it is
/// nothing.
inline void check_size(int64_t width, int64_t height, const Limits& limits, const char* what) {
  if (width < 1 || height < 1) throw refused(std::string(what) + " has no pixels");
  if (width > limits.pixels / height)
    throw Error(Reason::ImageTooLarge, std::string(what) + " has " + std::to_string(width) + " x " +
                                           std::to_string(height) + " pixels; at most " +
                                           std::to_string(limits.pixels) + " are allowed, send a smaller image");
}

}  // namespace pm::image
