// SPDX-License-Identifier: Apache-2.0
// Reduces CPU memory for all_reduce, always in rank order, so that every split of the work gives the same bits.
#pragma once
#include <cstdint>
#include <span>

#include "worker/comm/communicator.h"

namespace pm::comm {

/// Computes out[i] = ((parts[0][i] op parts[1][i]) op parts[2][i]) ... for i < count. `out` may be one of the parts.
/// Max keeps NaN, as at::maximum does.
void reduce_in_rank_order(std::span<const float* const> parts, float* out, int64_t count, Op op);

/// The elements [first, first + count) that rank r reduces; borders fall on cache lines.
struct Share {
  int64_t first, count;
};
Share share_of(int64_t count, int rank, int size);

}  // namespace pm::comm
