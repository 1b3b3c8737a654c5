// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/shared_memory/ring.h"

#include <algorithm>
#include <cstring>

#include "worker/base/error.h"

namespace pm::comm {

Ring::Ring(RingState& state, std::span<std::byte> data, AbortNote& note, Who who, std::chrono::milliseconds deadline,
           std::function<void(const std::string&)> end_group)
    : state_(state),
      data_(data),
      note_(note),
      who_(who),
      deadline_(deadline),
      spin_(2),
      end_group_(std::move(end_group)) {}

void Ring::miss() {
  const std::string what = std::string(who_.op) + " on rank " + std::to_string(who_.rank) + " waited " +
                           std::to_string(deadline_.count()) + " ms for rank " + std::to_string(who_.peer);
  end_group_(what);
  throw Error(Reason::CommunicatorAborted, what);
}

void Ring::write(std::span<const std::byte> bytes) {
  uint64_t written = state_.written.load(std::memory_order_relaxed);
  while (!bytes.empty()) {
    uint64_t space = 0;
    const auto has_space = [&] {
      return (space = data_.size() - (written - state_.read.load(std::memory_order_acquire))) != 0;
    };
    if (!wait(state_.writer, spin_, after(deadline_), [&] { return note_.aborted() || has_space(); })) miss();
    if (note_.aborted()) throw_aborted(who_.op, who_.rank, note_);
    const size_t at = written % data_.size();
    const size_t count = std::min({bytes.size(), static_cast<size_t>(space), data_.size() - at});
    std::memcpy(data_.data() + at, bytes.data(), count);
    bytes = bytes.subspan(count);
    written += count;
    state_.written.store(written, std::memory_order_release);
    notify(state_.reader);
  }
}

void Ring::read(std::span<std::byte> bytes) {
  uint64_t read = state_.read.load(std::memory_order_relaxed);
  while (!bytes.empty()) {
    uint64_t filled = 0;
    const auto has_data = [&] { return (filled = state_.written.load(std::memory_order_acquire) - read) != 0; };
    if (!wait(state_.reader, spin_, after(deadline_), [&] { return note_.aborted() || has_data(); })) miss();
    if (note_.aborted()) throw_aborted(who_.op, who_.rank, note_);
    const size_t at = read % data_.size();
    const size_t count = std::min({bytes.size(), static_cast<size_t>(filled), data_.size() - at});
    std::memcpy(bytes.data(), data_.data() + at, count);
    bytes = bytes.subspan(count);
    read += count;
    state_.read.store(read, std::memory_order_release);
    notify(state_.writer);
  }
}

bool Ring::wait_for_data(std::chrono::milliseconds timeout) {
  const auto arrived = [&] {
    return state_.written.load(std::memory_order_acquire) != state_.read.load(std::memory_order_relaxed);
  };
  const bool met = wait(state_.reader, spin_, after(timeout), [&] { return note_.aborted() || arrived(); });
  if (note_.aborted()) throw_aborted(who_.op, who_.rank, note_);
  return met;
}

}  // namespace pm::comm
