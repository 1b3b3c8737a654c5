// SPDX-License-Identifier: Apache-2.0
// Declares the control channels: rank 0 sends step messages to every follower in order, and the last stage of each
// data-parallel rank sends results back. A channel is not a collective and has no deadline while it is idle.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pm::comm {

/// The direction of a channel: from rank 0 (the leader) to a follower, or back.
enum class Direction { ToFollower, ToLeader };

/// Carries messages of any length from one rank to one other, in FIFO order. send() blocks while the ring is full, up
/// to the deadline; receive() blocks without one.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Sends one message. Throws Error{RankLost} when the receiver does not drain the ring within the deadline or when
  /// the group is aborted.
  virtual void send(std::span<const uint8_t> message) = 0;
  /// Returns the next message, or nothing when `timeout` passed. Throws Error{RankLost} when the group is aborted.
  virtual std::optional<std::vector<uint8_t>> receive(std::chrono::milliseconds timeout) = 0;
  /// Ends every wait on both sides with `reason`.
  virtual void abort(const std::string& reason) = 0;
};

/// Makes a channel between threads of one process.
std::shared_ptr<Channel> in_process_channel(std::chrono::milliseconds deadline);
/// Opens the channel between rank 0 and `follower` inside the shared-memory segment of the group (create_segment()).
std::shared_ptr<Channel> shared_memory_channel(const std::string& segment, int follower,
                                               std::chrono::milliseconds deadline,
                                               Direction direction = Direction::ToFollower);

}  // namespace pm::comm
