// The status board and its heartbeat.
#include <gtest/gtest.h>

#include "tests/unit/worker/comm/group.h"
#include "worker/base/error.h"
#include "worker/comm/status.h"

namespace pm::comm::test {
namespace {

TEST(StatusBoard, AFreshBoardIsAllStarting) {
  const auto board = StatusBoard::in_process(3);
  EXPECT_EQ(board->size(), 3);
  EXPECT_EQ(board->rank(2).state, static_cast<uint32_t>(RankState::Starting));
  EXPECT_EQ(board->rank(2).heartbeat_ns, 0);
  EXPECT_EQ(board->launcher_ns(), 0);
  EXPECT_THROW(board->rank(3), std::out_of_range);
}

TEST(StatusBoard, WhatARankWritesTheLauncherReads) {
  TestSegment segment;
  const auto launcher = StatusBoard::create(segment.name, 2);
  const auto rank = StatusBoard::open(segment.name, 2);
  rank->rank(1).steps = 42;
  rank->fail(1, "ModelUnreadable", "tensor wte is missing", 3);
  EXPECT_EQ(launcher->rank(1).steps, 42);
  EXPECT_EQ(launcher->rank(1).failed, 1u);
  EXPECT_STREQ(launcher->rank(1).reason, "ModelUnreadable");
  EXPECT_STREQ(launcher->rank(1).message, "tensor wte is missing");
  EXPECT_EQ(launcher->rank(1).exit_code, 3);
  EXPECT_EQ(launcher->rank(1).state, static_cast<uint32_t>(RankState::Failed));
  EXPECT_EQ(launcher->rank(0).failed, 0u);
  EXPECT_THROW(StatusBoard::open(segment.name, 3), Error);
}

TEST(StatusBoard, TheFirstFailureStaysAndLongTextIsCutBetweenCharacters) {
  const auto board = StatusBoard::in_process(1);
  std::string accents;
  for (int i = 0; i < 400; ++i) accents += "é";
  board->fail(0, "RankLost", "x" + accents, 5);
  board->fail(0, "Other", "later", 1);
  EXPECT_STREQ(board->rank(0).reason, "RankLost");
  const std::string message = board->rank(0).message;
  EXPECT_EQ(message.size() % 2, 1u);
  EXPECT_GE(message.size(), 509u);
  EXPECT_EQ(board->rank(0).exit_code, 5);
}

TEST(Heartbeat, BeatsUntilDestroyed) {
  const auto board = StatusBoard::in_process(1);
  int64_t last = 0;
  {
    const Heartbeat heart(board, 0);
    EXPECT_EQ(board->rank(0).pid, getpid());
    const int64_t first = board->rank(0).heartbeat_ns;
    EXPECT_NE(first, 0);
    const auto patience = std::chrono::steady_clock::now() + 10s;
    while (board->rank(0).heartbeat_ns == first && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    last = board->rank(0).heartbeat_ns;
    EXPECT_GT(last, first);
  }
  last = board->rank(0).heartbeat_ns;
  std::this_thread::sleep_for(250ms);
  EXPECT_EQ(board->rank(0).heartbeat_ns, last);
}

}  // namespace
}  // namespace pm::comm::test
