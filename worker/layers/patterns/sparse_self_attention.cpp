// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/patterns/sparse_self_attention.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace pm::layers {

namespace {

ops::SparseOptions options_of(const policy::Attention& attention) {
  ops::SparseOptions options{.scale = attention.scale, .pattern = {}};
  if (const auto* window = std::get_if<policy::SlidingWindow>(&attention.pattern))
    options.pattern = ops::SlidingWindow{window->size / 2};
  else if (const auto* blocks = std::get_if<policy::BlockSparse>(&attention.pattern))
    options.pattern = ops::BlockSparse{blocks->block, blocks->random};
  else
    throw std::logic_error("sparse attention without a pattern");
  return options;
}

}  // namespace

SparseSelfAttention::SparseSelfAttention(const policy::Attention& attention, Loader& loader)
    : options_(options_of(attention)) {
  const auto* window = std::get_if<policy::SlidingWindow>(&attention.pattern);
  if (window)
    global_.emplace(
        Global{ColumnLinear({&window->key, &window->value}, loader), ColumnLinear({&window->query}, loader)});
}

/// Projects the global tokens' queries, and all tokens' keys and values for them.
ops::GlobalRows SparseSelfAttention::global_rows(const at::Tensor& x, const Batch& batch, int64_t heads,
                                                 int64_t head_dim, const Exchange& exchange) const {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < batch.columns.size(); ++i)
    for (const int64_t token : batch.columns[i].global_tokens) rows.push_back(batch.sequences.spans[i].first + token);
  if (rows.empty()) {
    // weights are gathered from other ranks in a fixed order, whatever the request
    for (const ColumnLinear* linear : {&global_->keys_and_values, &global_->query})
      if (linear->is_gathered()) (*linear)(x.narrow(0, 0, 1));
    return {};
  }
  const at::Tensor kv = exchange(global_->keys_and_values(x));
  const at::Tensor of_tokens = at::index_select(x, 0, at::tensor(rows, at::kLong).to(x.device()));
  const auto shaped = [&](const at::Tensor& columns, int64_t first) {
    return columns.narrow(1, first * head_dim, heads * head_dim)
        .reshape({columns.size(0), heads, head_dim})
        .to(at::kFloat);
  };
  return {shaped(global_->query(of_tokens), 0), shaped(kv, 0), shaped(kv, heads)};
}

at::Tensor SparseSelfAttention::operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const at::Tensor& x, const Batch& batch, const Exchange& exchange,
                                           std::vector<ops::SparseProbabilities>* probabilities) const {
  const ops::GlobalRows global = global_ ? global_rows(x, batch, q.size(1), q.size(2), exchange) : ops::GlobalRows{};
  return ops::sparse_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), global, batch.sequences.spans,
                               batch.columns, options_, probabilities)
      .to(q.scalar_type());
}

}  // namespace pm::layers
