// SPDX-License-Identifier: Apache-2.0
// Maps the shared-memory segment of a group: one file that holds all data that its ranks exchange on this host.
//   header | barrier slots [n] | call logs [n] | slots [n][2 halves] | channel rings to followers [n-1] | and back
// [n-1] |
//   point-to-point rings [n x n]
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "worker/comm/channel.h"
#include "worker/comm/collectives/phased_barrier.h"
#include "worker/comm/shared_memory/ring.h"
#include "worker/comm/shared_memory/shm_file.h"

namespace pm::comm {

constexpr int64_t channel_ring_bytes = 1 << 20;    ///< rank 0 to each follower, and back
constexpr int64_t mailbox_ring_bytes = 128 << 10;  ///< each ordered pair of ranks

struct SegmentHeader {
  std::atomic<uint64_t> magic{0};  ///< written last; the segment is incomplete before
  uint64_t version = 0;
  int64_t ranks = 0;
  int64_t half_bytes = 0;  ///< size of one half of the double buffer of a slot
  AbortNote note;
};

/// The last collectives that one rank started on its device, where no rank waits for another. Call number i is entry i
/// % size, so that ranks can compare afterwards. All-zero is fresh.
struct alignas(64) CallLog {
  std::array<std::atomic<uint64_t>, 64> calls{};
};

class Segment {
 public:
  /// Creates the file of a segment for n ranks (create_segment() in communicator.h). `bytes_per_rank` is split into two
  /// halves of whole pages.
  static void create(const std::string& name, int n, int64_t bytes_per_rank);
  /// Opens a segment. Throws Error{RankLost} when the file is missing, not a segment of this version, or made for
  /// another number of ranks (0 = any).
  static std::shared_ptr<Segment> open(const std::string& name, int expected_ranks);

  int ranks() const { return static_cast<int>(header().ranks); }
  int64_t half_bytes() const { return header().half_bytes; }
  AbortNote& note() { return header().note; }
  std::span<BarrierSlot> barrier_slots();
  std::span<CallLog> call_logs();
  std::byte* slot(int rank, int half) const;
  /// Return the state and the data of the channel ring between rank 0 and `follower`, 1 <= follower < n.
  RingState& channel_state(int follower, Direction);
  std::span<std::byte> channel_data(int follower, Direction);
  RingState& mailbox_state(int from, int to);
  std::span<std::byte> mailbox_data(int from, int to);

  /// Writes the abort note and wakes all waiters.
  void abort(const std::string& reason);

 private:
  explicit Segment(ShmFile file) : file_(std::move(file)) {}
  SegmentHeader& header() const;
  RingState& ring_state(int index) const;
  std::byte* ring_data(int index) const;
  int ring_count() const;
  int channel_index(int follower, Direction) const;
  ShmFile file_;
};

}  // namespace pm::comm
