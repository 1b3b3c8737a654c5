// SPDX-License-Identifier: Apache-2.0
// What attention reads beside the tokens: their columns and segments; and what the separators of a request's texts say:
// which tokens are global, and where a question ends.
#pragma once
#include <string>
#include <vector>

#include "worker/models/requests/request_tensors.h"
#include "worker/models/requests/stack_input.h"

namespace pm::models {

/// Returns whether layers of the stack read the columns in which tokens stand: sparse attention, attention in chunks,
/// relative positions by content, convolutions.
bool reads_columns(const policy::Stack&);
/// Returns the input that numbers the segments of tokens for the stack's attention; "": there is none.
std::string segments_input(const policy::Stack&);
/// Returns whether an attention of the stack is a sliding window with global tokens.
bool has_sliding_window(const policy::Stack&);
/// Returns where the tokens of the stack's rows stand. With a sliding window it reads
/// global_attention_mask [rows, length]; without that, the class says which tokens are global. Throws
/// Error{InvalidRequest} when a row does not have the separators that the class looks for.
std::vector<ops::SequenceColumns> sequence_columns(const policy::Model&, const policy::Stack&, const at::Tensor& ids,
                                                   const StackInput&, RequestTensors&);

/// Returns whether a head masks the tokens of the question.
bool masks_question(const policy::Model&);
/// Returns the length of each row's question [rows], its separator included: question_lengths [rows, 1] of the request,
/// or up to the first separator of ids [rows, length]; 1 in a row without one.
at::Tensor question_lengths(const policy::Model&, const at::Tensor& ids, RequestTensors&);

}  // namespace pm::models
