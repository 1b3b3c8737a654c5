// SPDX-License-Identifier: Apache-2.0
// Tests channels between threads, through a segment and between nodes: order, length, waiting, abort.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/unit/worker/comm/group.h"
#include "worker/base/error.h"
#include "worker/comm/channel.h"

namespace pm::comm::test {
namespace {

using testing::HasSubstr;

struct Ends {
  Ends(Backend backend, std::chrono::milliseconds deadline) {
    if (backend == Backend::InProcess) {
      writer = reader = in_process_channel(deadline);
    } else if (backend == Backend::Nodes) {
      meshes = std::make_unique<Meshes>(3, 1);
      meshes->connect_all();
      writer = tcp_channel(meshes->all[0], 2, deadline);
      reader = tcp_channel(meshes->all[2], 2, deadline);
    } else {
      create_segment(segment.name, 3, 1 << 14);
      writer = shared_memory_channel(segment.name, 2, deadline);
      reader = shared_memory_channel(segment.name, 2, deadline);
    }
  }
  TestSegment segment;
  std::unique_ptr<Meshes> meshes;
  std::shared_ptr<Channel> writer, reader;
};

class Channels : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, Channels, testing::Values(Backend::InProcess, Backend::SharedMemory, Backend::Nodes),
                         [](const auto& info) { return name_of(info.param); });

std::vector<uint8_t> message_of(size_t length, uint8_t first) {
  std::vector<uint8_t> message(length);
  std::iota(message.begin(), message.end(), first);
  return message;
}

TEST(SharedMemoryChannels, BothWaysOfAFollowerAreApart) {
  const TestSegment segment;
  create_segment(segment.name, 3, 1 << 14);
  const auto end = [&](Direction direction) { return shared_memory_channel(segment.name, 2, 20s, direction); };
  end(Direction::ToFollower)->send(message_of(5, 1));
  end(Direction::ToLeader)->send(message_of(7, 2));
  EXPECT_EQ(end(Direction::ToFollower)->receive(20s)->size(), 5u);
  EXPECT_EQ(end(Direction::ToLeader)->receive(20s)->size(), 7u);
  EXPECT_FALSE(shared_memory_channel(segment.name, 1, 20s, Direction::ToLeader)->receive(1ms));
}

TEST_P(Channels, MessagesArriveWholeAndInOrderUnderLoad) {
  Ends ends(GetParam(), 20s);
  constexpr int count = 20'000;
  std::mt19937 lengths(11);  // both sides generate the same lengths
  std::thread sender([&ends, lengths]() mutable {
    for (int i = 0; i < count; ++i) ends.writer->send(message_of(lengths() % 600, static_cast<uint8_t>(i)));
  });
  for (int i = 0; i < count; ++i) {
    const auto message = ends.reader->receive(20s);
    ASSERT_TRUE(message);
    ASSERT_EQ(*message, message_of(lengths() % 600, static_cast<uint8_t>(i))) << "message " << i;
  }
  sender.join();
}

TEST_P(Channels, MessagesLongerThanTheRingGoThrough) {
  Ends ends(GetParam(), 20s);
  std::thread sender([&] {
    for (const size_t length : {size_t{5'000'000}, size_t{0}, size_t{1 << 20}, size_t{3'000'001}})
      ends.writer->send(message_of(length, 3));
  });
  for (const size_t length : {size_t{5'000'000}, size_t{0}, size_t{1 << 20}, size_t{3'000'001}})
    EXPECT_EQ(ends.reader->receive(20s), message_of(length, 3));
  sender.join();
}

TEST_P(Channels, NothingArrivesWithinTheTimeout) {
  Ends ends(GetParam(), 20s);
  EXPECT_EQ(ends.reader->receive(0ms), std::nullopt);
  EXPECT_EQ(ends.reader->receive(20ms), std::nullopt);
  ends.writer->send(message_of(3, 1));
  EXPECT_EQ(ends.reader->receive(0ms), message_of(3, 1));
}

TEST_P(Channels, AReceiverSleepsWithoutDeadlineUntilAMessageComes) {
  Ends ends(GetParam(), 20s);
  std::thread sender([&] {
    std::this_thread::sleep_for(50ms);
    ends.writer->send(message_of(9, 7));
  });
  EXPECT_EQ(ends.reader->receive(std::chrono::milliseconds::max()), message_of(9, 7));
  sender.join();
}

TEST_P(Channels, ASenderWaitsForAFollowerThatDoesNotDrainAndThenSaysSo) {
  Ends ends(GetParam(), 50ms);
  try {
    for (int i = 0; i < 1000; ++i) ends.writer->send(message_of(10'000, 0));
    FAIL() << "the ring is 1 MiB";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::RankLost);
    EXPECT_THAT(error.what(), HasSubstr("waited 50 ms"));
  }
}

TEST_P(Channels, AbortEndsWaitsOnBothSides) {
  Ends ends(GetParam(), 60s);
  std::thread receiver([&] {
    try {
      ends.reader->receive(60s);
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 left"));
    }
  });
  std::this_thread::sleep_for(20ms);
  ends.writer->abort("rank 0 left");
  receiver.join();
  EXPECT_THROW(ends.writer->send(message_of(1, 1)), Error);
}

}  // namespace
}  // namespace pm::comm::test
