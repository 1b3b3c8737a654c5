// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/chunks.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pm::policy {

std::vector<int64_t> Hashes::buckets_of(int64_t length, int64_t chunk) const {
  if (!buckets.empty()) return buckets;
  const int power = std::bit_width(static_cast<uint64_t>(2 * (length / chunk))) - 1;
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(positions / chunk)));
  const int64_t most = 2 * std::max(root, chunk);
  if (int64_t{1} << power <= most) return {int64_t{1} << power};
  return {int64_t{1} << (power / 2), int64_t{1} << (power - power / 2)};
}

int64_t Chunks::padded(int64_t tokens) const {
  if (tokens <= shortest || tokens % multiple == 0) return tokens;
  return (tokens / multiple + 1) * multiple;
}

}  // namespace pm::policy
