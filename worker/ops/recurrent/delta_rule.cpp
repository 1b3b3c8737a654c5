// SPDX-License-Identifier: Apache-2.0
// By chunks the writes of a chunk's tokens are found at once, by solving a triangular system (the UT transform of Yang
// et al. 2024, "Parallelizing Linear Transformers with the Delta Rule"), so that nearly all work is matrix products.
#include "worker/ops/recurrent/delta_rule.h"

#include <ATen/ATen.h>

#include "worker/ops/recurrent/state_chunks.h"

namespace pm::ops {

namespace {

/// One chunk, of which everything has the dimensions [heads, tokens, width].
struct Chunk {
  at::Tensor queries, keys, values, rates;
  at::Tensor decays;  ///< [heads, tokens]
};

/// Returns the chunk's results and advances the state. With the decays D between tokens, the writes U solve (1 +
/// tril(rate k k^T D, -1)) U = rate (v - exp(decays so far) k^T S).
at::Tensor run_chunk(const Chunk& c, at::Tensor& state) {
  const ChunkDecays decays(c.decays);
  const at::Tensor transposed = c.keys.transpose(1, 2);
  const at::Tensor system = at::bmm(c.keys * c.rates, transposed).mul_(decays.between);
  const at::Tensor unknown = (c.values - at::bmm(c.keys * decays.shrunk, state)).mul_(c.rates);
  const at::Tensor writes =
      at::linalg_solve_triangular(system, unknown, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  const at::Tensor seen = at::bmm(c.queries, transposed).mul_(decays.between);
  at::Tensor result = at::bmm(c.queries * decays.shrunk, state).add_(at::bmm(seen, writes));
  state = (state * decays.whole).add_(at::bmm((c.keys * decays.left).transpose(1, 2), writes));
  return result;
}

}  // namespace

at::Tensor delta_rule_step(const DeltaRule& r, at::Tensor& states) {
  const at::Tensor keys = r.keys.unsqueeze(2), queries = r.queries.unsqueeze(2);  // [tokens, heads, 1, key_dim]
  states = states * r.decays.exp().unsqueeze(2).unsqueeze(3);
  const at::Tensor writes = (r.values - at::matmul(keys, states).squeeze(2)).mul_(r.rates.unsqueeze(2));
  states = states.addcmul_(keys.transpose(2, 3), writes.unsqueeze(2));
  return at::matmul(queries, states).squeeze(2);
}

at::Tensor delta_rule(const DeltaRule& r, at::Tensor& state) {
  const auto step = [&](int64_t i, at::Tensor& states) {
    const auto one = [&](const at::Tensor& x) { return x.narrow(0, i, 1); };
    return delta_rule_step({one(r.queries), one(r.keys), one(r.values), one(r.decays), one(r.rates)}, states);
  };
  const auto chunk = [&](int64_t first, int64_t count) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, count).transpose(0, 1).contiguous(); };
    const Chunk own{.queries = part(r.queries),
                    .keys = part(r.keys),
                    .values = part(r.values),
                    .rates = part(r.rates).unsqueeze(2),
                    .decays = part(r.decays)};
    return run_chunk(own, state).transpose(0, 1);
  };
  return run_by_chunks(r.keys.size(0), state, step, chunk);
}

}  // namespace pm::ops
