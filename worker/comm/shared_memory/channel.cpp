// SPDX-License-Identifier: Apache-2.0
// Implements the channel between processes. A ring of the segment carries each message after its length.
#include <stdexcept>

#include "worker/comm/channel.h"
#include "worker/comm/shared_memory/segment.h"

namespace pm::comm {
namespace {

class SharedMemoryChannel final : public Channel {
 public:
  SharedMemoryChannel(std::shared_ptr<Segment> segment, int follower, Direction direction,
                      std::chrono::milliseconds deadline)
      : segment_(std::move(segment)),
        out_(ring({"channel send", direction == Direction::ToFollower ? 0 : follower,
                   direction == Direction::ToFollower ? follower : 0},
                  follower, direction, deadline)),
        in_(ring({"channel receive", direction == Direction::ToFollower ? follower : 0,
                  direction == Direction::ToFollower ? 0 : follower},
                 follower, direction, deadline)) {}

  void send(std::span<const uint8_t> message) override {
    const uint64_t length = message.size();
    out_.write(std::as_bytes(std::span(&length, 1)));
    out_.write(std::as_bytes(message));
  }

  std::optional<std::vector<uint8_t>> receive(std::chrono::milliseconds timeout) override {
    if (!in_.wait_for_data(timeout)) return std::nullopt;
    uint64_t length = 0;
    in_.read(std::as_writable_bytes(std::span(&length, 1)));
    std::vector<uint8_t> message(length);
    in_.read(std::as_writable_bytes(std::span(message)));
    return message;
  }

  void abort(const std::string& reason) override { segment_->abort(reason); }

 private:
  Ring ring(Ring::Who who, int follower, Direction direction, std::chrono::milliseconds deadline) {
    return Ring(segment_->channel_state(follower, direction), segment_->channel_data(follower, direction),
                segment_->note(), who, deadline, [s = segment_](const std::string& why) { s->abort(why); });
  }
  std::shared_ptr<Segment> segment_;
  Ring out_, in_;
};

}  // namespace

std::shared_ptr<Channel> shared_memory_channel(const std::string& segment, int follower,
                                               std::chrono::milliseconds deadline, Direction direction) {
  auto shared = Segment::open(segment, 0);
  if (follower < 1 || follower >= shared->ranks())
    throw std::invalid_argument("channel to rank " + std::to_string(follower) + " in a group of " +
                                std::to_string(shared->ranks()));
  return std::make_shared<SharedMemoryChannel>(std::move(shared), follower, direction, deadline);
}

}  // namespace pm::comm
