// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/patterns/unlike_widths.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::layers {

namespace {

at::Tensor padded_to(const at::Tensor& heads, int64_t width) {
  return heads.size(2) == width ? heads : at::constant_pad_nd(heads, {0, width - heads.size(2)});
}

}  // namespace

at::Tensor attend_unlike(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const ops::StepSequences& sequences, const ops::AttentionOptions& options,
                         std::vector<at::Tensor>* probabilities) {
  // Kernels know one width: the narrower ones get zeros, which add nothing to scores and are not read.
  const int64_t own = v.size(2), width = std::max(own, q.size(2));
  if (q.size(1) == 0) {
    for (size_t i = 0; probabilities && i < sequences.spans.size(); ++i)
      probabilities->push_back(
          at::zeros({0, sequences.spans[i].tokens, sequences.spans[i].keys}, q.options().dtype(at::kFloat)));
    return at::zeros({q.size(0), 0, own}, q.options());
  }
  const at::Tensor out = ops::ragged_attention(padded_to(q, width), padded_to(k, width), padded_to(v, width), sequences,
                                               options, probabilities);
  return own == width ? out : out.narrow(2, 0, own);
}

}  // namespace pm::layers
