// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/collectives/reduce.h"

#include <algorithm>

#include "worker/base/widest.h"

namespace pm::comm {
namespace {

// The aliasing that is allowed is exact, so no iteration reads what another wrote.
PM_WIDEST void add(const float* a, const float* b, float* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

PM_WIDEST void maximum(const float* a, const float* b, float* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = (a[i] > b[i] || a[i] != a[i]) ? a[i] : b[i];
}

}  // namespace

void reduce_in_rank_order(std::span<const float* const> parts, float* out, int64_t count, Op op) {
  const auto combine = op == Op::Sum ? add : maximum;
  if (parts.size() == 1) {
    if (out != parts[0]) std::copy_n(parts[0], count, out);
    return;
  }
  if (parts.size() == 2) return combine(parts[0], parts[1], out, count);
  constexpr int64_t block = 1024;
  float sum[block];  // `out` may be a later part: nothing is written there before all parts of the block are read
  for (int64_t at = 0; at < count; at += block) {
    const int64_t width = std::min(block, count - at);
    combine(parts[0] + at, parts[1] + at, sum, width);
    for (size_t p = 2; p < parts.size(); ++p)
      combine(sum, parts[p] + at, p + 1 == parts.size() ? out + at : sum, width);
  }
}

Share share_of(int64_t count, int rank, int size) {
  constexpr int64_t line = 16;  // floats in a cache line
  const int64_t lines = (count + line - 1) / line;
  const int64_t first = std::min(count, lines * rank / size * line),
                last = std::min(count, lines * (rank + 1) / size * line);
  return {first, last - first};
}

}  // namespace pm::comm
