// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/recurrent/state_chunks.h"

#include <limits>

namespace pm::ops {

ChunkDecays::ChunkDecays(const at::Tensor& logarithms) {
  const int64_t tokens = logarithms.size(1);
  const at::Tensor so_far = logarithms.cumsum(1), last = so_far.narrow(1, tokens - 1, 1);
  const at::Tensor later = at::ones({tokens, tokens}, logarithms.options().dtype(at::kBool)).triu(1);
  shrunk = so_far.exp().unsqueeze(2);
  between =
      (so_far.unsqueeze(2) - so_far.unsqueeze(1)).masked_fill_(later, -std::numeric_limits<double>::infinity()).exp_();
  left = (last - so_far).exp_().unsqueeze(2);
  whole = last.exp().unsqueeze(2);
}

}  // namespace pm::ops
