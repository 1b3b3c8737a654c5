// SPDX-License-Identifier: Apache-2.0
// Outputs of streams that predict following tokens, in the form that transformers gives them: streams one after
// another.
#pragma once
#include "worker/models/requests/stack_input.h"

namespace pm::models {

/// Returns the states of one request in each stream beside the main one, of the states of all requests, whose main
/// stream has the rows before those of the others. The request's rows of a stream are `row` .. `row` + `rows`.
std::vector<at::Tensor> states_of_streams(const at::Tensor& all, int64_t streams, int64_t row, int64_t rows);
/// Pads values of each stream [tokens, width] to [rows, streams x length, width].
at::Tensor padded_streams(const StackInput&, const std::vector<at::Tensor>& of_streams);
/// Pads what streams saw, [heads, streams, queries, keys + 1] of each sequence, to [rows, streams, heads, length, 2 x
/// length]: keys of the main stream, then those of the stream, of which a query sees its own.
at::Tensor padded_stream_attentions(const StackInput&, const std::vector<at::Tensor>& of_sequences);
/// Pads what the queries of all streams saw of a source, [heads, (1 + streams) x queries, keys] of each sequence, to
/// [rows, heads, (1 + streams) x length, keys' length]. `hidden` stands where there is no key.
at::Tensor padded_cross_attentions(const StackInput&, int64_t streams, const std::vector<at::Tensor>& of_sequences,
                                   const StackInput& keys, float hidden);

}  // namespace pm::models
