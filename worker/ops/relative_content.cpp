// SPDX-License-Identifier: Apache-2.0
// Terms of attention scores by the content of relative positions, by ATen's gathers for any device.
#include <ATen/ATen.h>

#include "worker/ops/backend.h"

namespace pm::ops {

void Backend::add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k,
                                   const RelativeContent& content, const at::Tensor& columns) const {
  const int64_t heads = scores.size(0), tokens = scores.size(1);
  const at::Tensor distance = columns.unsqueeze(1) - columns.unsqueeze(0) + content.index->reach;
  const at::Tensor row = at::index_select(content.index->rows, 0, distance.flatten()).reshape({tokens, tokens});
  if (content.keys.defined()) {
    const at::Tensor products = at::bmm(q.permute({1, 0, 2}), content.keys.permute({1, 2, 0}));
    scores.add_(at::gather(products, 2, row.expand({heads, tokens, tokens})));
  }
  if (content.queries.defined()) {
    const at::Tensor products = at::bmm(k, content.queries.permute({1, 2, 0}));
    scores.add_(at::gather(products, 2, row.t().expand({heads, tokens, tokens})).transpose(1, 2));
  }
}

void add_segments(at::Tensor& scores, const at::Tensor& q, const at::Tensor& states, const at::Tensor& segments) {
  const at::Tensor products = at::bmm(q.permute({1, 0, 2}), states.permute({1, 2, 0}));  // [heads, tokens, 2]
  const at::Tensor same = products.narrow(2, 0, 1), other = products.narrow(2, 1, 1);
  scores.add_(at::where(segments.unsqueeze(1) == segments.unsqueeze(0), same, other));
}

}  // namespace pm::ops
