// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/shared_memory/segment.h"

#include <new>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/comm/communicator.h"

namespace pm::comm {
namespace {

constexpr uint64_t segment_magic = 0x6d6d6f632d6d7001, segment_version = 3;

/// Offsets of the parts of a segment for n ranks, in bytes.
struct Layout {
  Layout(int64_t n, int64_t half_bytes)
      : barrier_slots(round_up(sizeof(SegmentHeader))),
        logs(round_up(barrier_slots + n * static_cast<int64_t>(sizeof(BarrierSlot)))),
        slots(round_up(logs + n * static_cast<int64_t>(sizeof(CallLog)))),
        ring_states(slots + n * 2 * half_bytes),
        channel_rings(round_up(ring_states + (2 * (n - 1) + n * n) * static_cast<int64_t>(sizeof(RingState)))),
        mailbox_rings(channel_rings + 2 * (n - 1) * channel_ring_bytes),
        total(mailbox_rings + n * n * mailbox_ring_bytes) {}
  static int64_t round_up(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  int64_t barrier_slots, logs, slots, ring_states, channel_rings, mailbox_rings, total;
};

template <class T>
T* at(std::byte* base, int64_t offset) {
  return std::launder(reinterpret_cast<T*>(base + offset));
}

}  // namespace

SegmentHeader& Segment::header() const { return *at<SegmentHeader>(file_.bytes().data(), 0); }

void Segment::create(const std::string& name, int n, int64_t bytes_per_rank) {
  constexpr int most = 64;
  if (n < 1 || n > most)
    throw std::invalid_argument("a segment for " + std::to_string(n) + " ranks; expected 1 to " + std::to_string(most));
  if (bytes_per_rank < 8192)
    throw std::invalid_argument("a segment with " + std::to_string(bytes_per_rank) +
                                " bytes per rank; expected at least 8192");
  const int64_t half_bytes = bytes_per_rank / 2 / 4096 * 4096;
  const ShmFile file = ShmFile::create(name, static_cast<size_t>(Layout(n, half_bytes).total));
  SegmentHeader& header = *at<SegmentHeader>(file.bytes().data(), 0);
  header.version = segment_version;
  header.ranks = n;
  header.half_bytes = half_bytes;
  header.magic.store(segment_magic, std::memory_order_release);
}

std::shared_ptr<Segment> Segment::open(const std::string& name, int expected_ranks) {
  std::shared_ptr<Segment> segment(new Segment(ShmFile::open(name)));
  const auto refuse = [&](const std::string& what) { throw Error(Reason::RankLost, "segment " + name + ": " + what); };
  if (segment->file_.bytes().size() < sizeof(SegmentHeader)) refuse("too short");
  const SegmentHeader& header = segment->header();
  if (header.magic.load(std::memory_order_acquire) != segment_magic || header.version != segment_version)
    refuse("not made by this version of the program");
  if (expected_ranks != 0 && header.ranks != expected_ranks)
    refuse("made for " + std::to_string(header.ranks) + " ranks, expected " + std::to_string(expected_ranks));
  if (static_cast<int64_t>(segment->file_.bytes().size()) != Layout(header.ranks, header.half_bytes).total)
    refuse("size does not fit its header");
  return segment;
}

std::span<BarrierSlot> Segment::barrier_slots() {
  return {at<BarrierSlot>(file_.bytes().data(), Layout(header().ranks, header().half_bytes).barrier_slots),
          static_cast<size_t>(header().ranks)};
}

std::span<CallLog> Segment::call_logs() {
  return {at<CallLog>(file_.bytes().data(), Layout(header().ranks, header().half_bytes).logs),
          static_cast<size_t>(header().ranks)};
}

std::byte* Segment::slot(int rank, int half) const {
  return file_.bytes().data() + Layout(header().ranks, header().half_bytes).slots +
         (2 * rank + half) * header().half_bytes;
}

int Segment::ring_count() const { return static_cast<int>(2 * (header().ranks - 1) + header().ranks * header().ranks); }

RingState& Segment::ring_state(int index) const {
  return at<RingState>(file_.bytes().data(), Layout(header().ranks, header().half_bytes).ring_states)[index];
}

int Segment::channel_index(int follower, Direction direction) const {
  return follower - 1 + (direction == Direction::ToLeader ? static_cast<int>(header().ranks) - 1 : 0);
}

RingState& Segment::channel_state(int follower, Direction direction) {
  return ring_state(channel_index(follower, direction));
}

std::span<std::byte> Segment::channel_data(int follower, Direction direction) {
  return {file_.bytes().data() + Layout(header().ranks, header().half_bytes).channel_rings +
              channel_index(follower, direction) * channel_ring_bytes,
          static_cast<size_t>(channel_ring_bytes)};
}

RingState& Segment::mailbox_state(int from, int to) {
  return ring_state(static_cast<int>(2 * (header().ranks - 1) + from * header().ranks + to));
}

std::span<std::byte> Segment::mailbox_data(int from, int to) {
  return {file_.bytes().data() + Layout(header().ranks, header().half_bytes).mailbox_rings +
              (from * header().ranks + to) * mailbox_ring_bytes,
          static_cast<size_t>(mailbox_ring_bytes)};
}

void Segment::abort(const std::string& reason) {
  note().write(reason);
  for (BarrierSlot& slot : barrier_slots()) notify_all(slot.event);
  for (int index = 0; index < ring_count(); ++index) {
    notify_all(ring_state(index).reader);
    notify_all(ring_state(index).writer);
  }
}

void create_segment(const std::string& segment, int n, int64_t bytes_per_rank) {
  Segment::create(segment, n, bytes_per_rank);
}

void abort_segment(const std::string& segment, const std::string& reason) {
  try {
    Segment::open(segment, 0)->abort(reason);
  } catch (const Error&) {
    // the segment has been removed, so that no rank waits there
  }
}

}  // namespace pm::comm
