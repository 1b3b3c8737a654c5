// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/rows/memory_rows.h"

#include <ATen/ATen.h>

namespace pm::layers {

MemoryRows::MemoryRows(const std::vector<ops::SequenceSpan>& sequences, int64_t length) : queries_(sequences) {
  keys_.columns.resize(sequences.size());
  std::vector<at::Tensor> order;
  int64_t row = 0;
  const int64_t memories = static_cast<int64_t>(sequences.size()) * length;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t tokens = sequences[i].tokens, own = length + tokens;
    queries_.columns[i].start = length;
    queries_.spans[i].context = length;
    keys_.spans.push_back({.first = row, .tokens = own, .context = 0, .keys = own, .key_row = row, .blocks = {}});
    const int64_t before = static_cast<int64_t>(i) * length, first = memories + sequences[i].first;
    order.push_back(at::arange(before, before + length, at::kLong));
    order.push_back(at::arange(first, first + tokens, at::kLong));
    row += own;
  }
  order_ = at::cat(order);
}

at::Tensor MemoryRows::beside(const at::Tensor& memories, const at::Tensor& states) const {
  const at::Tensor before = memories.defined()
                                ? memories.to(states.scalar_type())
                                : at::zeros({order_.size(0) - states.size(0), states.size(1)}, states.options());
  return at::index_select(at::cat({before, states}), 0, order_.to(states.device()));
}

}  // namespace pm::layers
