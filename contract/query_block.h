// SPDX-License-Identifier: Apache-2.0
// The blocks of queries in which sparse attention runs: the planner counts the memory of their scores, the worker
// allocates it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace pm {

/// Returns the queries whose scores are held at once by attention to the `each_side` keys before and after each query.
/// A block as long as one side computes at most 1.5 times the scores that count; longer ones only take more memory.
constexpr int64_t sliding_query_block(int64_t each_side) { return std::clamp<int64_t>(each_side, 32, 256); }

}  // namespace pm
