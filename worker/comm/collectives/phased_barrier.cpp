// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/collectives/phased_barrier.h"

#include <stdexcept>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

constexpr int tag_bits = 56;

std::string describe(uint64_t tag) {
  return std::string(name(static_cast<Operation>(tag >> tag_bits))) + " of " +
         std::to_string(tag & ((1ull << tag_bits) - 1)) + " bytes";
}

}  // namespace

PhasedBarrier::PhasedBarrier(std::span<BarrierSlot> slots, AbortNote& note, int rank, int first,
                             std::chrono::milliseconds deadline, std::function<void(const std::string&)> end_group)
    : slots_(slots),
      note_(note),
      rank_(rank),
      first_(first),
      deadline_(deadline),
      spin_(static_cast<int>(slots.size())),
      end_group_(std::move(end_group)),
      phase_(slots[rank].arrived.load()) {}

int PhasedBarrier::enter(Operation op, int64_t bytes) {
  op_ = op;
  tag_ = static_cast<uint64_t>(op) << tag_bits | static_cast<uint64_t>(bytes);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_)
      wait_until(name(op), peer, [&] { return slots_[peer].arrived.load(std::memory_order_acquire) >= phase_; });
  if (note_.aborted()) throw_aborted(name(op), first_ + rank_, note_);
  ++phase_;
  const int half = static_cast<int>(phase_ % 2);
  slots_[rank_].tag[half].store(tag_, std::memory_order_relaxed);
  return half;
}

void PhasedBarrier::arrive() {
  slots_[rank_].arrived.store(phase_, std::memory_order_release);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) notify(slots_[peer].event);
}

void PhasedBarrier::wait_for(int peer) {
  if (peer == rank_) return;
  wait_until(name(op_), peer, [&] { return slots_[peer].arrived.load(std::memory_order_acquire) >= phase_; });
  const uint64_t theirs = slots_[peer].tag[phase_ % 2].load(std::memory_order_relaxed);
  if (theirs == tag_) return;
  const std::string what = "ranks disagree: rank " + std::to_string(first_ + rank_) + " calls " + describe(tag_) +
                           ", rank " + std::to_string(first_ + peer) + " calls " + describe(theirs);
  end_group_(what);
  throw std::logic_error(what);
}

void PhasedBarrier::wait_for_all() {
  for (int peer = 0; peer < size(); ++peer) wait_for(peer);
}

void PhasedBarrier::miss(const char* op, int peer) {
  const std::string what = std::string(op) + " on rank " + std::to_string(first_ + rank_) + " waited " +
                           std::to_string(deadline_.count()) + " ms for rank " + std::to_string(first_ + peer);
  end_group_(what);
  throw Error(Reason::CommunicatorAborted, what);
}

}  // namespace pm::comm
