// SPDX-License-Identifier: Apache-2.0
// Tests readiness, liveness and the watchdog on a simulated clock.
#include "worker/launch/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm::launch {
namespace {

using namespace std::chrono_literals;
using comm::RankState;

class Health : public testing::Test {
 protected:
  void beat(int r) { status_table->rank(r).heartbeat_ns = now.time_since_epoch().count(); }
  void beat_all() { beat(0), beat(1); }
  void set(int r, RankState state) { status_table->rank(r).state = static_cast<uint32_t>(state); }
  /// Advances time in ticks of 100 ms with heartbeats, as the loop of the launcher does; stops at the first stall.
  std::optional<Stall> pass(std::chrono::milliseconds span, bool beating = true) {
    for (const Time end = now + span; now < end;) {
      now += 100ms;
      if (beating) beat_all();
      if (auto stall = watchdog.observe(*status_table, now)) return stall;
    }
    return std::nullopt;
  }
  std::shared_ptr<comm::StatusTable> status_table = comm::StatusTable::in_process(2);
  Time now{1000s};
  Watchdog watchdog{{.heartbeat_timeout = 5s, .hang = 60s, .load_stall = 120s}};
};

TEST_F(Health, ReadyNeedsEveryRankReadyWithAFreshHeartbeat) {
  beat_all();
  EXPECT_FALSE(ready(*status_table, now));
  set(0, RankState::Ready);
  EXPECT_FALSE(ready(*status_table, now));
  set(1, RankState::Ready);
  EXPECT_TRUE(ready(*status_table, now));
  now += 1900ms;
  EXPECT_TRUE(ready(*status_table, now));
  now += 200ms;
  beat(0);
  EXPECT_FALSE(ready(*status_table, now)) << "rank 1 is silent for 2.1 s";
  beat(1);
  EXPECT_TRUE(ready(*status_table, now));
  set(0, RankState::Draining);
  EXPECT_FALSE(ready(*status_table, now));
}

TEST_F(Health, ReadyNeedsALauncherThatRuns) {
  beat_all();
  set(0, RankState::Ready), set(1, RankState::Ready);
  status_table->launcher_heartbeat_ns() = (now - 3s).time_since_epoch().count();
  EXPECT_FALSE(ready(*status_table, now));
  status_table->launcher_heartbeat_ns() = now.time_since_epoch().count();
  EXPECT_TRUE(ready(*status_table, now));
}

TEST_F(Health, LiveFailsOnlyWhenLoadBytesStandStill) {
  Liveness liveness;
  EXPECT_TRUE(liveness.live(*status_table, now));
  set(1, RankState::Loading);
  EXPECT_TRUE(liveness.live(*status_table, now += 1000s)) << "loading is first seen here";
  EXPECT_TRUE(liveness.live(*status_table, now += 119s));
  status_table->rank(1).load_bytes += 1;
  EXPECT_TRUE(liveness.live(*status_table, now += 119s));
  EXPECT_FALSE(liveness.live(*status_table, now += 121s));
  set(1, RankState::Ready);
  EXPECT_TRUE(liveness.live(*status_table, now += 1000s));
}

TEST_F(Health, LiveFailsWhenTheLauncherIsStuck) {
  Liveness liveness;
  status_table->launcher_heartbeat_ns() = now.time_since_epoch().count();
  EXPECT_TRUE(liveness.live(*status_table, now + 9s));
  EXPECT_FALSE(liveness.live(*status_table, now + 11s));
}

TEST_F(Health, ASilentHeartIsFrozenAfterFiveSeconds) {
  EXPECT_FALSE(pass(20s, false)) << "hearts that never beat belong to ranks that start";
  EXPECT_FALSE(pass(1s));
  for (const Time end = now + 5s; now < end;) {
    now += 100ms;
    beat(0);
    ASSERT_FALSE(watchdog.observe(*status_table, now));
  }
  now += 100ms;
  beat(0);
  const auto stall = watchdog.observe(*status_table, now);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
}

TEST_F(Health, AWatchdogThatWasStoppedItselfReportsNoStall) {
  EXPECT_FALSE(pass(1s));
  now += 60s;  // the whole container was frozen
  EXPECT_FALSE(watchdog.observe(*status_table, now));
  EXPECT_FALSE(pass(1s));
  EXPECT_FALSE(pass(1s, false));
  EXPECT_TRUE(pass(10s, false)) << "but it watches again";
}

TEST_F(Health, NoStepForTheHangTimeoutCountsOnlyWithOpenRequests) {
  EXPECT_FALSE(pass(200s));
  status_table->rank(0).open_requests = 1;
  EXPECT_FALSE(pass(59s));
  status_table->rank(0).steps += 1;
  EXPECT_FALSE(pass(59s));
  const auto stall = pass(3s);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 1);
  EXPECT_THAT(stall->message, testing::HasSubstr("1 open requests"));
}

TEST_F(Health, LoadBytesThatStandStillNameTheSlowest) {
  set(0, RankState::Loading), set(1, RankState::Loading);
  status_table->rank(0).load_total = 100, status_table->rank(0).load_bytes = 20;
  status_table->rank(1).load_total = 1000, status_table->rank(1).load_bytes = 900;
  EXPECT_FALSE(pass(119s));
  const auto stall = pass(3s);
  ASSERT_TRUE(stall);
  EXPECT_EQ(stall->rank, 0);
  EXPECT_THAT(stall->message, testing::HasSubstr("20 of 100 bytes"));
}

TEST_F(Health, EachNodeWatchesItsOwnRanksAndNodeZeroTheSteps) {
  set(0, RankState::Ready), set(1, RankState::Ready);
  status_table->rank(0).open_requests = 1;
  Watchdog of_node_0({.heartbeat_timeout = 5s, .hang = 60s, .load_stall = 120s}, 0, 1),
      of_node_1({.heartbeat_timeout = 5s, .hang = 60s, .load_stall = 120s}, 1, 1);
  std::optional<Stall> first, second;
  for (int i = 0; i < 700 && !first; ++i) {  // rank 1 sends no heartbeat, rank 0 makes no step
    now += 100ms;
    beat(0);
    if (i == 0) beat(1);
    if (!second) second = of_node_1.observe(*status_table, now);
    first = of_node_0.observe(*status_table, now);
  }
  ASSERT_TRUE(second && first);
  EXPECT_EQ(second->message, "rank 1 is frozen: no heartbeat for 5 s");
  EXPECT_THAT(first->message, testing::HasSubstr("no step for 60 s with 1 open requests"));
}

}  // namespace
}  // namespace pm::launch
