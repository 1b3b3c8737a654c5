// SPDX-License-Identifier: Apache-2.0
// Tests a rank that never joins, one that makes another call, and a group that ends while a device still waits.
// Operations return before they are done, so the watchdog thread notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/gpu/fake_device/current_device.h"
#include "tests/gpu/fake_device/nccl/fault_injection.h"
#include "tests/unit/worker/comm/nccl/ranks.h"
#include "worker/base/error.h"

namespace pm::comm::test {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

at::Tensor ones(int64_t count, at::Device device) { return at::ones({count}, at::TensorOptions(device)); }

/// Joins both ranks in NCCL; later operations run on the device alone.
void join_nccl(Communicator& rank, at::Device device) {
  at::Tensor first = ones(4, device);
  rank.all_reduce(first);
  first.cpu();
}

TEST(DeviceFailures, ARankThatNeverJoinsIsNamedAtTheDeadline) {
  DeviceRanks group(2, 200ms);
  const auto thrown = group.run([](Communicator& rank, at::Device device) {
    at::Tensor tensor = ones(4, device);
    if (rank.rank() == 0) rank.all_reduce(tensor);
  });
  EXPECT_THAT(words_of(thrown[0]),
              HasSubstr("join of rank 0 on fake:0 with ranks 0 to 1: NCCL waited 200 ms for the others"));
  EXPECT_THROW(group.ranks[1]->check(), Error) << "a missed deadline ends the group for all";
}

TEST(DeviceFailures, AnOperationThatNeverEndsIsNamedAtTheDeadline) {
  DeviceRanks group(2, 300ms);
  std::atomic<double> seconds{0};
  const auto thrown = group.run([&](Communicator& rank, at::Device device) {
    join_nccl(rank, device);
    if (rank.rank() == 1) return;
    const auto started = Clock::now();
    at::Tensor tensor = ones(4, device);
    rank.all_reduce(tensor);
    EXPECT_LT(Clock::now() - started, 200ms) << "the call does not wait for the device";
    tensor.cpu();  // here the host waits
    seconds = std::chrono::duration<double>(Clock::now() - started).count();
    rank.check();
  });
  EXPECT_THAT(words_of(thrown[0]),
              HasSubstr("all_reduce of 16 bytes on rank 0 waited 300 ms for other ranks on fake:0"));
  EXPECT_GT(seconds, 0.25);
  EXPECT_LT(seconds, 5);
}

TEST(DeviceFailures, ASlowStepIsNotALostRankAsLongAsSomethingMoves) {
  DeviceRanks group(2, 400ms);
  group.all([](Communicator& rank, at::Device device) {
    join_nccl(rank, device);
    at::Tensor tensor = ones(4, device);
    for (int i = 0; i < 4; ++i) {
      if (rank.rank() == 1) std::this_thread::sleep_for(200ms);
      rank.all_reduce(tensor);
    }
    tensor.cpu();
    rank.check();
  });
}

TEST(DeviceFailures, AnAbortFromOutsideEndsWhatTheDeviceWaitsFor) {
  DeviceRanks group(2, 60s);
  std::atomic<Clock::rep> aborted{0};
  double seconds = 0;
  const auto thrown = group.run([&](Communicator& rank, at::Device device) {
    join_nccl(rank, device);
    at::Tensor tensor = ones(4, device);
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(100ms);
      aborted = Clock::now().time_since_epoch().count();
      abort_segment(group.segment.name, "RankLost: rank 1 died of signal 9");
      return;
    }
    rank.all_reduce(tensor);
    tensor.cpu();
    seconds = std::chrono::duration<double>(Clock::now().time_since_epoch() - Clock::duration(aborted)).count();
    rank.check();
  });
  EXPECT_THAT(words_of(thrown[0]),
              HasSubstr("a step on rank 0: the group was aborted: RankLost: rank 1 died of signal 9"));
  EXPECT_LT(seconds, 1) << "the watch looks every 20 ms";
  at::Tensor more = ones(4, group.devices[0]);
  EXPECT_THROW(group.ranks[0]->all_reduce(more), Error);
}

TEST(DeviceFailures, RanksThatCallDifferentOperationsGetAnError) {
  DeviceRanks group(2);
  const auto thrown = group.run([](Communicator& rank, at::Device device) {
    join_nccl(rank, device);
    at::Tensor tensor = ones(rank.rank() == 0 ? 4 : 8, device);
    rank.all_reduce(tensor);
    tensor.cpu();
    rank.check();
  });
  for (const auto& error : thrown)
    EXPECT_THAT(words_of(error), AnyOf(HasSubstr("all_reduce of 16 bytes, rank 1 calls all_reduce of 32 bytes"),
                                       HasSubstr("all_reduce of 32 bytes, rank 0 calls all_reduce of 16 bytes")));
}

TEST(DeviceFailures, ATransferOfAnotherSizeIsAnError) {
  DeviceRanks group(2);
  const auto thrown = group.run([](Communicator& rank, at::Device device) {
    at::Tensor tensor = ones(rank.rank() == 0 ? 4 : 8, device);
    if (rank.rank() == 0)
      rank.send(tensor, 1);
    else
      rank.recv(tensor, 0);
  });
  EXPECT_THAT(words_of(thrown[1]), HasSubstr("recv on rank 1: expected 32 bytes, rank 0 sent 16"));
}

TEST(DeviceFailures, AnErrorThatNcclReportsLaterEndsTheGroupWithItsText) {
  DeviceRanks group(2);
  const auto thrown = group.run([&](Communicator& rank, at::Device device) {
    join_nccl(rank, device);
    at::Tensor tensor = ones(4, device);
    if (rank.rank() == 0) rank.all_reduce(tensor);
    if (rank.rank() == 1) fake_device::break_nccl(fake_device::last_joined);
    tensor.cpu();
    for (int i = 0; rank.rank() == 1 && i < 500 && !Segment::open(group.segment.name, 2)->note().aborted(); ++i)
      std::this_thread::sleep_for(10ms);
    rank.check();
  });
  for (const auto& error : thrown)
    EXPECT_THAT(words_of(error), HasSubstr("NCCL: remote process exited or there was a network error"));
}

TEST(DeviceFailures, TwoRanksOnOneDeviceAreRefusedWithTheErrorOfNccl) {
  DeviceRanks group(2, 20s, true);
  const auto thrown = group.run([](Communicator& rank, at::Device device) {
    at::Tensor tensor = ones(4, device);
    rank.all_reduce(tensor);
  });
  for (const auto& error : thrown)
    EXPECT_THAT(words_of(error), HasSubstr("NCCL: invalid usage (Duplicate GPU detected)"));
}

TEST(DeviceFailures, ADeviceWithoutALibraryIsRefused) {
  TestSegment segment;
  create_segment(segment.name, 2, 64 << 10);
  try {
    device_communicator({.host = shared_memory(segment.name, 0, 2, 1s),
                         .segment = Segment::open(segment.name, 2),
                         .device = at::Device(at::DeviceType::XPU, 0)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::UnsupportedDevice);
    EXPECT_THAT(error.what(), HasSubstr("no library of collectives"));
  }
}

/// Threads that have not selected a device would use device 0, which none of these ranks has.
TEST(DeviceContexts, NoThreadOfARankUsesAnotherDevice) {
  fake_device::forget_contexts();
  const auto work = [](Communicator& rank, at::Device device) {
    join_nccl(rank, device);
    at::Tensor tensor = ones(4, device);
    for (int i = 0; i < 3; ++i) {
      rank.all_reduce(tensor);
      std::this_thread::sleep_for(50ms);  // the watchdog looks every 20 ms
    }
    rank.check();
  };
  {
    DeviceRanks group(2, 20s, false, 2);
    group.all(work);
  }
  EXPECT_THAT(fake_device::contexts(), ElementsAre(2, 3)) << "after a regular end";
  {
    DeviceRanks group(2, 20s, false, 2);
    group.all(work);
    abort_segment(group.segment.name, "RankLost: rank 1 died of signal 9");
    std::this_thread::sleep_for(200ms);  // the watchdog aborts the communicators
  }
  EXPECT_THAT(fake_device::contexts(), ElementsAre(2, 3)) << "after an abort";
}

TEST(DeviceFailures, NothingIsLeftInSharedMemory) {
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(entry.path().filename().string().starts_with("parallelmodel-fake-nccl-" + std::to_string(getpid())))
        << entry.path();
}

}  // namespace
}  // namespace pm::comm::test
