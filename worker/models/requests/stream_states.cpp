// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/stream_states.h"

#include <ATen/ATen.h>

namespace pm::models {

std::vector<at::Tensor> states_of_streams(const at::Tensor& all, int64_t streams, int64_t row, int64_t rows) {
  const int64_t total = all.size(0) / (1 + streams);
  std::vector<at::Tensor> states;
  for (int64_t stream = 1; stream <= streams; ++stream) states.push_back(all.narrow(0, stream * total + row, rows));
  return states;
}

at::Tensor padded_streams(const StackInput& stack_input, const std::vector<at::Tensor>& of_streams) {
  std::vector<at::Tensor> padded;
  for (const at::Tensor& values : of_streams) padded.push_back(stack_input.padded(values));
  return at::cat(padded, 1);
}

at::Tensor padded_stream_attentions(const StackInput& stack_input, const std::vector<at::Tensor>& of_sequences) {
  const int64_t heads = of_sequences[0].size(0), streams = of_sequences[0].size(1), length = stack_input.length;
  at::Tensor whole =
      at::zeros({stack_input.rows, streams, heads, length, 2 * length}, of_sequences[0].options().dtype(at::kFloat));
  const at::indexing::Slice all;
  for (size_t row = 0; row < of_sequences.size(); ++row) {
    const at::Tensor seen = of_sequences[row].transpose(0, 1), columns = stack_input.columns[row].to(whole.device());
    const ops::SequenceSpan& span = stack_input.batch.sequences.spans[row];
    const int64_t keys = seen.size(3) - 1;
    at::Tensor own = whole[static_cast<int64_t>(row)];
    const at::Tensor of_keys = columns.narrow(0, span.key_row - span.first, keys);  // padding is no key
    own.index_put_({all, all, columns.unsqueeze(1), of_keys.unsqueeze(0)}, seen.narrow(3, 0, keys));
    own.index_put_({all, all, columns, columns + length}, seen.select(3, keys));
  }
  return whole;
}

at::Tensor padded_cross_attentions(const StackInput& stack_input, int64_t streams,
                                   const std::vector<at::Tensor>& of_sequences, const StackInput& keys, float hidden) {
  std::vector<at::Tensor> padded;
  for (int64_t stream = 0; stream <= streams; ++stream) {
    std::vector<at::Tensor> own;
    for (const at::Tensor& one : of_sequences) own.push_back(one.chunk(1 + streams, 1)[static_cast<size_t>(stream)]);
    padded.push_back(stack_input.padded(own, keys, hidden));
  }
  return at::cat(padded, 2);
}

}  // namespace pm::models
