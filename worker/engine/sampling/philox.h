// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: a counter-based random number generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011).
#pragma once
#include <array>
#include <cstdint>

namespace pm::engine {

/// Returns four 32-bit words that depend only on key and counter.
constexpr std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter) {
  auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ low, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ high, static_cast<uint32_t>(a)};
    low += 0x9E3779B9;
    high += 0xBB67AE85;
  }
  return counter;
}

/// Returns a uniform number in (0, 1) for the token at `position` of sequence `sequence` under `seed`.
constexpr double uniform(uint64_t seed, uint64_t sequence, uint64_t position) {
  const auto words = philox(seed, {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                   static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;  // 53 bits
  return (static_cast<double>(bits) + 0.5) / 9007199254740992.0;
}

}  // namespace pm::engine
