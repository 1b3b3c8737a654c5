// SPDX-License-Identifier: Apache-2.0
// Gathers keys and values from the paged cache into adjacent rows. A thread block copies one KV block of a sequence, 16
// bytes of keys and of values a thread at a time, in the order of the cache.
#include "worker/ops/cuda/attention.h"
#include "worker/ops/cuda/device.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads) gather_kernel(GatherKv p) {
  begin_after_previous();
  const int64_t sequence = blockIdx.y, first = static_cast<int64_t>(blockIdx.x) * block_tokens;
  const int64_t row = p.starts[sequence] + first, left = p.starts[sequence + 1] - row;
  if (left <= 0) return;
  const int tokens = static_cast<int>(left < block_tokens ? left : block_tokens);
  const int pieces = static_cast<int>(p.d / 8), kv_heads = static_cast<int>(p.kv_heads);
  const int64_t block = p.tables[sequence * p.table_stride + blockIdx.x] * (p.block_stride / 8);
  const uint4 *k_from = static_cast<const uint4*>(p.k_cache) + block,
              *v_from = static_cast<const uint4*>(p.v_cache) + block;
  uint4 *k_to = static_cast<uint4*>(p.k) + row * kv_heads * pieces,
        *v_to = static_cast<uint4*>(p.v) + row * kv_heads * pieces;
  for (int i = static_cast<int>(threadIdx.x); i < kv_heads * block_tokens * pieces; i += threads) {
    const int piece = i % pieces, token = i / pieces % block_tokens, head = i / (pieces * block_tokens);
    if (token >= tokens) continue;
    const int to = (token * kv_heads + head) * pieces + piece;
    k_to[to] = k_from[i];
    v_to[to] = v_from[i];
  }
}

}  // namespace

void gather_kv(const GatherKv& p, Stream stream) {
  constexpr const char* name = "gather_kv";
  require(p.d % 8 == 0 && p.block_stride % 8 == 0, name,
          "heads of " + std::to_string(p.d) + " numbers, blocks " + std::to_string(p.block_stride) +
              " apart; multiples of 8 are served");
  require(aligned_16(p.k_cache) && aligned_16(p.v_cache) && aligned_16(p.k) && aligned_16(p.v), name,
          "keys and values must be 16-byte aligned");
  if (p.sequences == 0 || p.max_keys == 0) return;
  const dim3 grid(static_cast<unsigned>((p.max_keys + block_tokens - 1) / block_tokens),
                  static_cast<unsigned>(p.sequences));
  auto* kernel = &gather_kernel;
  PM_LAUNCH(kernel, grid, threads, 0, stream)(p);
  check_launch(name);
}

}  // namespace pm::ops::cuda
