// SPDX-License-Identifier: Apache-2.0
// By chunks a token reads what the tokens of its chunk wrote by a product of c and b, as masked attention does, and
// what earlier ones did by the state before the chunk. What c and b make is the same for all heads of a group.
#include "worker/ops/recurrent/selective_scan.h"

#include <ATen/ATen.h>

#include "worker/ops/recurrent/state_chunks.h"

namespace pm::ops {

namespace {

/// Runs one chunk, whose tensors have the dimensions [groups or heads, tokens, width].
at::Tensor run_chunk(const at::Tensor& reads, const at::Tensor& writes, const at::Tensor& values,
                     const at::Tensor& logarithms, at::Tensor& state) {
  const int64_t groups = reads.size(0), heads = values.size(0), tokens = values.size(1), dim = values.size(2);
  const ChunkDecays decays(logarithms);
  const auto by_group = [&](const at::Tensor& x) { return x.unflatten(0, {groups, heads / groups}); };
  const auto by_head = [&](const at::Tensor& x) { return x.flatten(0, 1); };
  const at::Tensor seen = at::bmm(reads, writes.transpose(1, 2)).unsqueeze(1),  // [groups, 1, tokens, tokens]
      weights = by_head(by_group(decays.between) * seen);
  at::Tensor result = at::bmm(weights, values);
  // all heads of a group beside each other: [groups, state_size, heads of the group x dim]
  const at::Tensor before = by_group(state).transpose(1, 2).flatten(2, 3);
  const at::Tensor kept = at::bmm(reads, before).reshape({groups, tokens, heads / groups, dim}).transpose(1, 2);
  result.addcmul_(by_head(kept), decays.shrunk);
  const at::Tensor added = at::bmm(writes.transpose(1, 2), by_group(values * decays.left).transpose(1, 2).flatten(2, 3))
                               .reshape({groups, reads.size(2), heads / groups, dim})
                               .transpose(1, 2);
  state = (state * decays.whole).add_(by_head(added));
  return result;
}

}  // namespace

at::Tensor selective_scan_step(const SelectiveScan& s, at::Tensor& states) {
  const int64_t tokens = s.values.size(0), heads = s.values.size(1), groups = s.reads.size(1);
  const auto of_heads = [&](const at::Tensor& x) {  // [tokens, heads, state_size]
    return x.unsqueeze(2).expand({tokens, groups, heads / groups, x.size(2)}).reshape({tokens, heads, x.size(2)});
  };
  states = states * s.decays.exp().unsqueeze(2).unsqueeze(3);
  states.addcmul_(of_heads(s.writes).unsqueeze(3), s.values.unsqueeze(2));
  return at::matmul(of_heads(s.reads).unsqueeze(2), states).squeeze(2);
}

at::Tensor selective_scan(const SelectiveScan& s, at::Tensor& state) {
  const auto step = [&](int64_t i, at::Tensor& states) {
    const auto one = [&](const at::Tensor& x) { return x.narrow(0, i, 1); };
    return selective_scan_step({one(s.reads), one(s.writes), one(s.values), one(s.decays)}, states);
  };
  const auto chunk = [&](int64_t first, int64_t count) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, count).transpose(0, 1).contiguous(); };
    return run_chunk(part(s.reads), part(s.writes), part(s.values), part(s.decays), state).transpose(0, 1);
  };
  return run_by_chunks(s.values.size(0), state, step, chunk);
}

}  // namespace pm::ops
