// SPDX-License-Identifier: Apache-2.0
// Terms of attention scores by the content of relative positions, by ATen's gathers for any device.
#include <ATen/ATen.h>

#include "worker/ops/backend.h"

namespace pm::ops {

void Backend::add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k,
                                   const RelativeContent& content, const RelativeSequence& sequence) const {
  const int64_t heads = scores.size(0), queries = scores.size(1), keys = scores.size(2);
  const at::Tensor distance = sequence.columns.unsqueeze(1) - sequence.key_columns.unsqueeze(0) + content.index->reach;
  const at::Tensor row = at::index_select(content.index->rows, 0, distance.flatten()).reshape({queries, keys});
  if (content.keys.defined()) {
    const at::Tensor products = at::bmm(q.permute({1, 0, 2}), content.keys.permute({1, 2, 0}));
    scores.add_(at::gather(products, 2, row.expand({heads, queries, keys})));
  }
  if (content.queries.defined()) {
    const at::Tensor products = at::bmm(k, content.queries.permute({1, 2, 0}));
    scores.add_(at::gather(products, 2, row.t().expand({heads, keys, queries})).transpose(1, 2));
  }
}

void add_segments(at::Tensor& scores, const at::Tensor& q, const RelativeContent& content,
                  const RelativeSequence& sequence) {
  const at::Tensor products = at::bmm(q.permute({1, 0, 2}), content.segments.permute({1, 2, 0})),
                   of_query = sequence.segments.unsqueeze(1), of_key = sequence.key_segments.unsqueeze(0);
  at::Tensor is_same = of_query == of_key;
  if (content.common_segment)
    is_same = is_same.logical_or(of_query == *content.common_segment).logical_or(of_key == *content.common_segment);
  const at::Tensor same = products.narrow(2, 0, 1), other = products.narrow(2, 1, 1);
  scores.add_(at::where(is_same, same, other));
}

void add_relative_terms(at::Tensor& scores, const at::Tensor& queries, const at::Tensor& segment_queries,
                        const at::Tensor& keys, const RelativeContent& content, const RelativeSequence& sequence) {
  const int64_t query = sequence.queries_apart, key = sequence.keys_apart;
  if (query == 0 && key == 0) {
    add_relative_content(scores, queries, keys, content, sequence);
    if (content.segments.defined()) add_segments(scores, segment_queries, content, sequence);
    return;
  }
  const int64_t others = scores.size(1) - query, other_keys = scores.size(2) - key;
  if (others <= 0 || other_keys <= 0) return;
  const auto after = [](const at::Tensor& x, int64_t dim, int64_t first) {
    return x.defined() ? x.narrow(dim, first, x.size(dim) - first) : x;
  };
  const RelativeSequence rest{.columns = after(sequence.columns, 0, query),
                              .key_columns = after(sequence.key_columns, 0, key),
                              .segments = after(sequence.segments, 0, query),
                              .key_segments = after(sequence.key_segments, 0, key)};
  at::Tensor of_rest = after(scores, 1, query);
  of_rest = after(of_rest, 2, key);
  at::Tensor sums = of_rest.contiguous();
  add_relative_terms(sums, after(queries, 0, query), after(segment_queries, 0, query), after(keys, 1, key), content,
                     rest);
  of_rest.copy_(sums);
}

}  // namespace pm::ops
