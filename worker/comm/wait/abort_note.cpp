// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/wait/abort_note.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "worker/base/error.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {

void AbortNote::write(const std::string& why) {
  uint32_t fresh = 0;
  if (state.compare_exchange_strong(fresh, 1)) {
    const size_t length = std::min(why.size(), sizeof reason - 1);
    std::memcpy(reason, why.data(), length);
    reason[length] = 0;
    state.store(2, std::memory_order_release);
    return;
  }
  // Another writer is active. A writer that died while writing must not keep the group alive.
  const auto deadline = Clock::now() + std::chrono::milliseconds(10);
  while (!aborted() && Clock::now() < deadline) relax();
  state.store(2, std::memory_order_release);
}

std::string AbortNote::text() const {
  const size_t length = strnlen(reason, sizeof reason);
  return length == 0 ? "no reason was recorded" : std::string(reason, length);
}

void throw_aborted(const char* op, int rank, const AbortNote& note) {
  throw Error(Reason::CommunicatorAborted,
              std::string(op) + " on rank " + std::to_string(rank) + ": the group was aborted: " + note.text());
}

}  // namespace pm::comm
