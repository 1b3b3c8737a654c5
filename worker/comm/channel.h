// The control channels: rank 0 sends step messages to every follower in order, a lane's last stage sends results back; not a collective, no deadline while idle.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pm::comm {

/// From rank 0 to a follower, or from there back to rank 0.
enum class Way { Out, Back };

/// Bytes from one rank to one other, FIFO, any length. Blocking send when the ring is full (deadline), blocking receive without one.
class Channel {
 public:
  virtual ~Channel() = default;
  /// The sender's side: writes one message. Throws Error{RankLost} when the other does not drain the ring within the deadline or is aborted.
  virtual void send(std::span<const uint8_t> message) = 0;
  /// The receiver's side: the next message; nothing when `timeout` passed. Throws Error{RankLost} when aborted.
  virtual std::optional<std::vector<uint8_t>> receive(std::chrono::milliseconds timeout) = 0;
  /// Ends every wait on both sides.
  virtual void abort(const std::string& reason) = 0;
};

/// A channel between threads of one process.
std::shared_ptr<Channel> in_process_channel(std::chrono::milliseconds deadline);
/// The channel between rank 0 and `follower` inside the shared-memory segment of the group (see create_segment).
std::shared_ptr<Channel> shared_memory_channel(const std::string& segment, int follower, std::chrono::milliseconds deadline, Way way = Way::Out);

}  // namespace pm::comm
