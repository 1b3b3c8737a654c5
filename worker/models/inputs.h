// SPDX-License-Identifier: Apache-2.0
// Turns named inputs, as Hugging Face takes them, into the unpadded rows of each stack.
#pragma once
#include "worker/base/array.h"
#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Makes the rows of every stack from the tensors of a request: input_ids [batch, length] with attention_mask,
/// position_ids and the indices of further tables; for encoder-decoders also decoder_input_ids and
/// decoder_attention_mask (absent: input_ids shifted right); for image stacks pixel_values [images, channels, height,
/// width]; for stacks of audio the samples or filter banks under the name of the stack's convolutions, with
/// attention_mask of that length; for multiple choice [batch, choices, length]; dense vectors under the names of the
/// stack's features; and what its heads read. Throws Error{InvalidRequest} with the tensor, what it is and what is
/// expected.
Inputs make_inputs(const policy::Model&, const Arrays&);
/// Makes the rows of the encoder of images or audio, from which a decoder generates, of one row of its tensors alone.
/// Throws Error{InvalidRequest} as make_inputs() does; std::logic_error where the encoder reads tokens.
StackInput make_source_input(const policy::Model&, const Arrays&);

}  // namespace pm::models
