// The shared-memory segment of a group: one file that holds everything its ranks say to each other on this host.
//   header | seats [n] | call logs [n] | slots [n][2 halves] | channel rings to followers [n-1] | and back [n-1] | point-to-point rings [n x n]
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "worker/comm/channel.h"
#include "worker/comm/phases.h"
#include "worker/comm/ring.h"
#include "worker/comm/shm_file.h"

namespace pm::comm {

constexpr int64_t channel_ring_bytes = 1 << 20;    ///< rank 0 to each follower, and back
constexpr int64_t mailbox_ring_bytes = 128 << 10;  ///< each ordered pair of ranks

struct SegmentHeader {
  std::atomic<uint64_t> magic{0};   ///< written last: before, the segment is not whole
  uint64_t version = 0;
  int64_t ranks = 0;
  int64_t half_bytes = 0;           ///< of one half of a slot's double buffer
  AbortNote note;
};

/// The last collectives that one rank began on its device, where nobody waits for anybody: call number i is entry i % size, so that ranks can compare afterwards. All-zero is fresh.
struct alignas(64) CallLog {
  std::array<std::atomic<uint64_t>, 64> calls{};
};

class Segment {
 public:
  /// See create_segment() in communicator.h. `bytes_per_rank` is split into two halves of whole cache lines.
  static void create(const std::string& name, int n, int64_t bytes_per_rank);
  /// Throws Error{RankLost} when the file is missing, not a segment of this version, or for another number of ranks (0 = any).
  static std::shared_ptr<Segment> open(const std::string& name, int expected_ranks);

  int ranks() const { return static_cast<int>(header().ranks); }
  int64_t half_bytes() const { return header().half_bytes; }
  AbortNote& note() { return header().note; }
  std::span<Seat> seats();
  std::span<CallLog> call_logs();
  std::byte* slot(int rank, int half) const;
  /// The channel rings between rank 0 and `follower`, 1 <= follower < n.
  RingState& channel_state(int follower, Way);
  std::span<std::byte> channel_data(int follower, Way);
  RingState& mailbox_state(int from, int to);
  std::span<std::byte> mailbox_data(int from, int to);

  /// Writes the note and wakes everybody.
  void abort(const std::string& reason);

 private:
  explicit Segment(ShmFile file) : file_(std::move(file)) {}
  SegmentHeader& header() const;
  RingState& ring_state(int index) const;
  std::byte* ring_data(int index) const;
  int ring_count() const;
  int channel_index(int follower, Way) const;
  ShmFile file_;
};

}  // namespace pm::comm
