// SPDX-License-Identifier: Apache-2.0
// Tests the status table and its heartbeat.
#include <gtest/gtest.h>

#include "tests/unit/worker/comm/group.h"
#include "worker/base/error.h"
#include "worker/comm/membership/status_table.h"

namespace pm::comm::test {
namespace {

TEST(StatusTable, AFreshTableIsAllStarting) {
  const auto status_table = StatusTable::in_process(3);
  EXPECT_EQ(status_table->size(), 3);
  EXPECT_EQ(status_table->rank(2).state, static_cast<uint32_t>(RankState::Starting));
  EXPECT_EQ(status_table->rank(2).heartbeat_ns, 0);
  EXPECT_EQ(status_table->launcher_heartbeat_ns(), 0);
  EXPECT_THROW(status_table->rank(3), std::out_of_range);
}

TEST(StatusTable, AFreshSharedTableHasNoFigures) {
  TestSegment segment;
  const auto status_table = StatusTable::create(segment.name, 1);
  const auto memory = snapshot(status_table->rank(0).measured);
  EXPECT_EQ(memory.weights + memory.kv + memory.activations + memory.communicator + memory.runtime, 0);
  const auto device = snapshot(status_table->rank(0).device);
  EXPECT_EQ(device.total + device.free + device.reserved + device.allocated + device.communicators, 0);
  const auto graphs = snapshot(status_table->rank(0).graphs);
  EXPECT_EQ(graphs.captured + graphs.replayed + graphs.bytes, 0);
  EXPECT_EQ(status_table->rank(0).capture_failed, 0u);
}

TEST(StatusTable, ASnapshotHasEachFigureUnderItsName) {
  const auto status_table = StatusTable::in_process(1);
  RankStatus& rank = status_table->rank(0);
  rank.measured.kv = 2;
  rank.measured.runtime = 5;
  rank.device.free = 7;
  rank.device.communicators = 11;
  rank.graphs.replayed = 13;
  EXPECT_EQ(snapshot(rank.measured).kv, 2);
  EXPECT_EQ(snapshot(rank.measured).runtime, 5);
  EXPECT_EQ(snapshot(rank.measured).weights, 0);
  EXPECT_EQ(snapshot(rank.device).free, 7);
  EXPECT_EQ(snapshot(rank.device).communicators, 11);
  EXPECT_EQ(snapshot(rank.device).total, 0);
  EXPECT_EQ(snapshot(rank.graphs).replayed, 13);
  EXPECT_EQ(snapshot(rank.graphs).bytes, 0);
}

TEST(StatusTable, WhatARankWritesTheLauncherReads) {
  TestSegment segment;
  const auto launcher = StatusTable::create(segment.name, 2);
  const auto rank = StatusTable::open(segment.name, 2);
  rank->rank(1).steps = 42;
  rank->fail(1, Reason::ModelUnreadable, "tensor wte is missing", 3);
  EXPECT_EQ(launcher->rank(1).steps, 42);
  EXPECT_EQ(launcher->rank(1).failed, 1u);
  EXPECT_STREQ(launcher->rank(1).reason, "ModelUnreadable");
  EXPECT_STREQ(launcher->rank(1).message, "tensor wte is missing");
  EXPECT_EQ(launcher->rank(1).exit_code, 3);
  EXPECT_EQ(launcher->rank(1).state, static_cast<uint32_t>(RankState::Failed));
  EXPECT_EQ(launcher->rank(0).failed, 0u);
  EXPECT_THROW(StatusTable::open(segment.name, 3), Error);
}

TEST(StatusTable, TheFirstFailureStaysAndLongTextIsCutBetweenCharacters) {
  const auto status_table = StatusTable::in_process(1);
  std::string accents;
  for (int i = 0; i < 400; ++i) accents += "é";
  status_table->fail(0, Reason::RankLost, "x" + accents, 5);
  status_table->fail(0, Reason::RankHung, "later", 1);
  EXPECT_STREQ(status_table->rank(0).reason, "RankLost");
  const std::string message = status_table->rank(0).message;
  EXPECT_EQ(message.size() % 2, 1u);
  EXPECT_GE(message.size(), 509u);
  EXPECT_EQ(status_table->rank(0).exit_code, 5);
}

TEST(Heartbeat, BeatsUntilDestroyed) {
  const auto status_table = StatusTable::in_process(1);
  int64_t last = 0;
  {
    const Heartbeat heart(status_table, 0);
    EXPECT_EQ(status_table->rank(0).pid, getpid());
    const int64_t first = status_table->rank(0).heartbeat_ns;
    EXPECT_NE(first, 0);
    const auto patience = std::chrono::steady_clock::now() + 10s;
    while (status_table->rank(0).heartbeat_ns == first && std::chrono::steady_clock::now() < patience)
      std::this_thread::yield();
    last = status_table->rank(0).heartbeat_ns;
    EXPECT_GT(last, first);
  }
  last = status_table->rank(0).heartbeat_ns;
  std::this_thread::sleep_for(250ms);
  EXPECT_EQ(status_table->rank(0).heartbeat_ns, last);
}

}  // namespace
}  // namespace pm::comm::test
