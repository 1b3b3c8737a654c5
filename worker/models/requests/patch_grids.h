// SPDX-License-Identifier: Apache-2.0
// The images of a request for a stack of patches of images of any size, and where the tokens of these images stand.
#pragma once
#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/stack.h"

namespace pm::models {

/// Reads pixel_values [patches, numbers of a patch], squares of patches at a time, and image_grid_thw [images, 3]:
/// frames (1), rows and columns of patches of each image; or whole images [images, channels, height, width] with their
/// sizes (policy::PatchGrid::sizes; without these all are as large as the tensor), as transformers has them. Every
/// image is a sequence. Throws Error{InvalidRequest} that names the tensor.
StackInput read_patches(const policy::Stack&, RequestTensors&);

/// Finds where tokens stand along the axes of rotary embedding of a decoder whose images have been read by
/// read_patches(). Those of an image, which have a type of 1 in `types` [rows, length], begin behind the token before
/// them and stand at the rows and columns of its squares; what follows begins behind the larger of both. Without
/// types nothing is set, so that all tokens stand one behind another, as in transformers. Throws Error{InvalidRequest}
/// unless images and types tell the same.
void find_axes(const policy::Stack&, const at::Tensor& types, const StackInput& images, StackInput&);

}  // namespace pm::models
