// SPDX-License-Identifier: Apache-2.0
// Tests a rank that does not come, one that makes another call, and an aborted group.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/comm/group.h"
#include "worker/base/error.h"
#include "worker/comm/shared_memory/segment.h"

namespace pm::comm::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// Returns the Error that ended a call; fails the test when it ended otherwise.
template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error";
  return {Reason::Usage, ""};
}

class Failures : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, Failures,
                         testing::Values(Backend::InProcess, Backend::SharedMemory, Backend::Nodes, Backend::Pairs),
                         [](const auto& info) { return name_of(info.param); });

/// Waits until an abort has reached other nodes.
void await_abort(const Group& group) {
  for (int i = 0; group.meshes && i < 5000 && !group.meshes->all[0]->segment().note().aborted(); ++i)
    std::this_thread::sleep_for(1ms);
}

TEST_P(Failures, AMissedDeadlineNamesOperationRankAndTheMissingPeer) {
  Group group(GetParam(), 3, 50ms);
  std::vector<int64_t> rows{1, 1, 1};
  const at::Tensor row = at::ones({1});
  const std::vector<std::pair<std::string, std::function<void(Communicator&)>>> operations{
      {"all_reduce on rank 1 waited 50 ms for rank 0",
       [](Communicator& c) {
         at::Tensor t = at::ones({4});
         c.all_reduce(t);
       }},
      {"all_gatherv on rank 1 waited 50 ms for rank 0", [&](Communicator& c) { c.all_gatherv(row, rows); }},
      {"gatherv on rank 1 waited 50 ms for rank 0", [&](Communicator& c) { c.gatherv(row, rows, 1); }},
      {"broadcast on rank 1 waited 50 ms for rank 2",
       [](Communicator& c) {
         at::Tensor t = at::ones({4});
         c.broadcast(t, 2);
       }},
      {"recv on rank 1 waited 50 ms for rank 0",
       [](Communicator& c) {
         at::Tensor t = at::ones({4});
         c.recv(t, 0);
       }},
      {"send on rank 1 waited 50 ms for rank 2", [](Communicator& c) { c.send(at::ones({1 << 20}), 2); }},
      {"barrier on rank 1 waited 50 ms for rank 0", [](Communicator& c) { c.barrier(); }}};
  for (const auto& [message, call] : operations) {
    Group fresh(GetParam(), 3, 50ms);
    const Error error = error_of([&, &call = call] { call(*fresh.ranks[1]); });
    EXPECT_EQ(error.kind, ErrorKind::RankLost);
    EXPECT_EQ(error.reason, Reason::CommunicatorAborted);
    EXPECT_THAT(error.what(), HasSubstr(message));
    await_abort(fresh);
    EXPECT_THAT(error_of([&] { fresh.ranks[0]->barrier(); }).what(), HasSubstr(message))
        << "a missed deadline ends the group for all";
  }
}

/// Puts three ranks to sleep in different operations, aborts, and returns how long the last of them took to end.
Clock::duration wake_by_abort(Backend backend) {
  Group group(backend, 4, 60s);
  std::atomic<Clock::rep> aborted_at{0}, latest{0};
  std::thread aborter([&] {
    std::this_thread::sleep_for(100ms);  // they sleep by now; were one late, it would find the group aborted
    aborted_at = Clock::now().time_since_epoch().count();
    group.ranks[0]->abort("RankLost: rank 0 died of signal 9");
  });
  const auto thrown = group.run([&](Communicator& rank) {
    if (rank.rank() == 0) return;
    const Error error = error_of([&] {
      at::Tensor tensor = at::ones({4});
      if (rank.rank() == 1) rank.all_reduce(tensor);
      if (rank.rank() == 2) rank.recv(tensor, 0);
      if (rank.rank() == 3) rank.send(at::ones({16 << 20}), 0);
    });
    for (Clock::rep mine = Clock::now().time_since_epoch().count() - aborted_at, seen = latest;
         mine > seen && !latest.compare_exchange_weak(seen, mine);) {
    }
    EXPECT_THAT(error.what(), HasSubstr("the group was aborted: RankLost: rank 0 died of signal 9"));
    EXPECT_THAT(error.what(), HasSubstr("on rank " + std::to_string(rank.rank())));
  });
  aborter.join();
  for (const auto& error : thrown) EXPECT_FALSE(error);
  return Clock::duration(latest);
}

TEST_P(Failures, AbortWakesEverySleeperWithinATenthOfASecond) {
  Clock::duration best = 60s;  // best of a few attempts: threads of a busy machine may wait for a CPU
  for (int attempt = 0; attempt < 10 && best >= 100ms; ++attempt) best = std::min(best, wake_by_abort(GetParam()));
  EXPECT_LT(best, 100ms);
}

TEST_P(Failures, AfterAnAbortEveryCallFailsAtOnceAndTheFirstReasonStays) {
  Group group(GetParam(), 2, 60s);
  group.ranks[1]->abort("first");
  await_abort(group);
  group.ranks[0]->abort("second");
  for (const auto& rank : group.ranks) {
    at::Tensor tensor = at::ones({4});
    EXPECT_THAT(error_of([&] { rank->all_reduce(tensor); }).what(), HasSubstr("first"));
    EXPECT_THAT(error_of([&] { rank->recv(tensor, 1 - rank->rank()); }).what(), HasSubstr("first"));
  }
}

TEST_P(Failures, RanksThatCallDifferentOperationsGetAnError) {
  Group group(GetParam(), 2, 20s);
  const auto thrown = group.run([](Communicator& rank) {
    at::Tensor tensor = at::ones({rank.rank() == 0 ? 4 : 8});
    rank.all_reduce(tensor);
  });
  int disagreements = 0;
  for (const auto& error : thrown) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const std::logic_error& e) {
      ++disagreements;
      EXPECT_THAT(e.what(), HasSubstr("ranks disagree"));
      EXPECT_THAT(e.what(), HasSubstr("all_reduce of 16 bytes"));
      EXPECT_THAT(e.what(), HasSubstr("all_reduce of 32 bytes"));
    } catch (const Error& e) {  // the other rank may learn of it by the abort
      EXPECT_THAT(e.what(), HasSubstr("ranks disagree"));
    }
  }
  EXPECT_GE(disagreements, 1);
}

TEST(Segments, AbortFromOutsideReachesRanksAndChannels) {
  Group group(Backend::SharedMemory, 2, 60s);
  abort_segment(group.segment.name, "RankLost: rank 1 died of signal 9");
  at::Tensor tensor = at::ones({4});
  EXPECT_THAT(error_of([&] { group.ranks[0]->all_reduce(tensor); }).what(), HasSubstr("rank 1 died of signal 9"));
}

TEST(Segments, AbortOfAnUnknownSegmentIsIgnored) {
  abort_segment("parallelmodel-test-never-made", "nobody hears this");
}

TEST(Segments, CreationReplacesAStaleFile) {
  TestSegment segment;
  create_segment(segment.name, 2, 1 << 16);
  abort_segment(segment.name, "an earlier life");
  create_segment(segment.name, 3, 1 << 16);
  EXPECT_FALSE(Segment::open(segment.name, 3)->note().aborted());
}

TEST(Segments, RefuseTheWrongNumberOfRanksAMissingFileAndBadNames) {
  TestSegment segment;
  create_segment(segment.name, 2, 1 << 16);
  EXPECT_THAT(error_of([&] { shared_memory(segment.name, 0, 3, 1s); }).what(),
              HasSubstr("made for 2 ranks, expected 3"));
  EXPECT_THAT(error_of([&] { shared_memory("parallelmodel-test-missing", 0, 2, 1s); }).what(),
              HasSubstr("parallelmodel-test-missing"));
  EXPECT_THROW(create_segment("a/b", 2, 1 << 16), std::invalid_argument);
  EXPECT_THROW(create_segment("", 2, 1 << 16), std::invalid_argument);
}

TEST(Segments, ASegmentLargerThanSharedMemoryIsRefusedAtCreation) {
  TestSegment segment;
  const Error error = error_of([&] { create_segment(segment.name, 2, int64_t{1} << 50); });
  EXPECT_EQ(error.kind, ErrorKind::DoesNotFit);
  EXPECT_THAT(error.what(), HasSubstr("shmSize"));
  EXPECT_FALSE(ShmFile::remove(segment.name)) << "no file is left";
}

}  // namespace
}  // namespace pm::comm::test
