// See phases.h.
#include "worker/comm/phases.h"

#include <stdexcept>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

constexpr int tag_bits = 56;

std::string describe(uint64_t tag) {
  return std::string(name(static_cast<Operation>(tag >> tag_bits))) + " of " + std::to_string(tag & ((1ull << tag_bits) - 1)) + " bytes";
}

}  // namespace

Phases::Phases(std::span<Seat> seats, AbortNote& note, int rank, int first, std::chrono::milliseconds deadline,
               std::function<void(const std::string&)> end_group)
    : seats_(seats), note_(note), rank_(rank), first_(first), deadline_(deadline), spin_(static_cast<int>(seats.size())),
      end_group_(std::move(end_group)), phase_(seats[rank].arrived.load()) {}

int Phases::enter(Operation op, int64_t bytes) {
  op_ = op;
  tag_ = static_cast<uint64_t>(op) << tag_bits | static_cast<uint64_t>(bytes);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) wait_until(name(op), peer, [&] { return seats_[peer].arrived.load(std::memory_order_acquire) >= phase_; });
  if (note_.aborted()) throw_aborted(name(op), first_ + rank_, note_);
  ++phase_;
  const int half = static_cast<int>(phase_ % 2);
  seats_[rank_].tag[half].store(tag_, std::memory_order_relaxed);
  return half;
}

void Phases::arrive() {
  seats_[rank_].arrived.store(phase_, std::memory_order_release);
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) knock(seats_[peer].door);
}

void Phases::wait_for(int peer) {
  if (peer == rank_) return;
  wait_until(name(op_), peer, [&] { return seats_[peer].arrived.load(std::memory_order_acquire) >= phase_; });
  const uint64_t theirs = seats_[peer].tag[phase_ % 2].load(std::memory_order_relaxed);
  if (theirs == tag_) return;
  const std::string what = "ranks disagree: rank " + std::to_string(first_ + rank_) + " calls " + describe(tag_) + ", rank " +
                           std::to_string(first_ + peer) + " calls " + describe(theirs);
  end_group_(what);
  throw std::logic_error(what);
}

void Phases::wait_for_all() {
  for (int peer = 0; peer < size(); ++peer) wait_for(peer);
}

void Phases::miss(const char* op, int peer) {
  const std::string what = std::string(op) + " on rank " + std::to_string(first_ + rank_) + " waited " + std::to_string(deadline_.count()) +
                           " ms for rank " + std::to_string(first_ + peer);
  end_group_(what);
  throw Error(ErrorKind::RankLost, "CommunicatorAborted", what);
}

}  // namespace pm::comm
