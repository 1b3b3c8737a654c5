// SPDX-License-Identifier: Apache-2.0
// The bytes of one rank, as the planner predicts them and the worker measures them.
#pragma once
#include <cstdint>

namespace pm {

/// Bytes of one rank, each term named.
struct Memory {
  int64_t weights = 0, kv = 0, activations = 0, communicator = 0, runtime = 0;
  int64_t total() const { return weights + kv + activations + communicator + runtime; }
};

}  // namespace pm
