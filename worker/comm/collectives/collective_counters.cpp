// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/collectives/collective_counters.h"

namespace pm::comm {

const char* name(Operation op) {
  static constexpr const char* names[operation_count] = {"all_reduce", "all_gatherv", "gatherv", "broadcast",
                                                         "send",       "recv",        "barrier"};
  const auto index = static_cast<size_t>(op);
  return index < operation_count ? names[index] : "unknown";
}

std::vector<Communicator::Count> CollectiveCounters::read() const {
  std::vector<Communicator::Count> out;
  for (size_t i = 0; i < all_.size(); ++i)
    out.push_back({name(static_cast<Operation>(i)), all_[i].calls.load(std::memory_order_relaxed),
                   all_[i].bytes.load(std::memory_order_relaxed),
                   1e-9 * static_cast<double>(all_[i].nanoseconds.load(std::memory_order_relaxed))});
  return out;
}

}  // namespace pm::comm
