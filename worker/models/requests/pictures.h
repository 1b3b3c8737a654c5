// SPDX-License-Identifier: Apache-2.0
// Reads the images of a request for a stack with a backbone: images of any size, padded to one size with a mask.
#pragma once
#include "worker/layers/batch.h"
#include "worker/models/requests/request_tensors.h"

namespace pm::models {

/// Reads pixel_values [images, channels, height, width], and the mask [images, height, width] with ones where an image
/// is, and finds the cells that the mask shows, as transformers does: each cell has the nearest pixel's. Throws
/// Error{InvalidRequest} that names the tensor.
layers::Pictures read_pictures(const policy::Model&, const policy::Input&, RequestTensors&);

/// Reads images whose pixels are rows, of one size or of any. Throws as read_pictures() does.
layers::Pictures read_pixels(const policy::Model&, const policy::Pixels&, RequestTensors&);

/// Returns which patches [images, patches] of a stack stand for the mask token: those of "bool_masked_pos", none where
/// a request has none. Undefined for a model without a head that fills in the pixels of patches. Throws
/// Error{InvalidRequest}.
at::Tensor read_masked_patches(const policy::Model&, const policy::Stack&, int64_t images, int64_t patches,
                               RequestTensors&);

}  // namespace pm::models
