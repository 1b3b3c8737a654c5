// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), with the same counters as the
// engine's host sampler.
#pragma once
#include "worker/ops/cuda/device.cuh"

namespace pm::ops::cuda {

/// Returns a uniform number in (0, 1) with 53 bits for the token at `position` of sequence `sequence` under `seed`.
__device__ __forceinline__ double uniform(uint64_t seed, uint64_t sequence, uint64_t position) {
  unsigned c0 = static_cast<unsigned>(position), c1 = static_cast<unsigned>(position >> 32),
           c2 = static_cast<unsigned>(sequence), c3 = static_cast<unsigned>(sequence >> 32);
  unsigned low = static_cast<unsigned>(seed), high = static_cast<unsigned>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned a_high = __umulhi(0xD2511F53u, c0), a_low = 0xD2511F53u * c0, b_high = __umulhi(0xCD9E8D57u, c2),
                   b_low = 0xCD9E8D57u * c2;
    c0 = b_high ^ c1 ^ low;
    c1 = b_low;
    c2 = a_high ^ c3 ^ high;
    c3 = a_low;
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  const uint64_t bits = (static_cast<uint64_t>(c0) << 32 | c1) >> 11;
  return (static_cast<double>(bits) + 0.5) / 9007199254740992.0;
}

}  // namespace pm::ops::cuda
