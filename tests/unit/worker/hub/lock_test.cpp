// SPDX-License-Identifier: Apache-2.0
// Tests the volume lock with holders that live, die, and restart.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "worker/base/error.h"
#include "worker/hub/lock.h"

namespace pm::hub {
namespace {

using std::chrono::milliseconds;

class Lock : public testing::Test {
 protected:
  Lock()
      : file(std::filesystem::temp_directory_path() / ("pm-lock-" + std::to_string(::getpid()) + "-" +
                                                       testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove(file);
  }
  ~Lock() override { std::filesystem::remove(file); }
  static LockOptions options(const std::string& owner, int lease = 300) {
    return {.lease = milliseconds(lease), .beat = milliseconds(20), .look = milliseconds(5), .owner = owner};
  }
  const std::filesystem::path file;
};

TEST_F(Lock, IsHeldByOneAtATimeForAsLongAsItLives) {
  std::atomic<int> inside{0}, most{0}, times{0};
  const auto work = [&](int n) {
    for (int i = 0; i < 5; ++i) {
      const VolumeLock lock(file, "x", options("host:" + std::to_string(n), 1000), {}, {});
      const int now = ++inside;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::sleep_for(milliseconds(i == 0 ? 1300 : 10));  // longer than a lease
      ++times, --inside;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int n = 0; n < 4; ++n) threads.emplace_back(work, n);
  }
  EXPECT_EQ(times, 20);
  EXPECT_EQ(most, 1);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Lock, OfADeadHolderIsTakenOverByOneWaiter) {
  std::ofstream(file) << "nonce dead:1 000000000003 org/name\n";
  std::atomic<int> inside{0}, most{0};
  std::atomic<bool> named{false};
  {
    std::vector<std::jthread> threads;
    for (int n = 0; n < 8; ++n) {
      threads.emplace_back([&, n] {
        const VolumeLock lock(file, "x", options("host:" + std::to_string(n)), {},
                              [&](const std::string& holder) { named = named || holder == "dead:1 (org/name)"; });
        const int now = ++inside;
        int seen = most;
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::sleep_for(milliseconds(20));
        --inside;
      });
    }
  }
  EXPECT_LE(most, 2) << "a rare race costs traffic and nothing else";
  EXPECT_TRUE(named);
}

TEST_F(Lock, OfAPreviousProcessOfTheSameOwnerIsTakenAtOnce) {
  std::ofstream(file) << "nonce m-fetch:1 000000000003 org/name\n";
  const auto started = std::chrono::steady_clock::now();
  const VolumeLock lock(file, "x", options("m-fetch:1", 60'000), {}, {});
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(5));
}

TEST_F(Lock, WaitingEndsWhenItIsStopped) {
  std::ofstream(file) << "nonce other:1 000000000003 org/name\n";
  std::stop_source stop;
  const auto wait = [&] {
    VolumeLock(file, "x", options("host:1", 60'000), stop.get_token(),
               [&](const std::string&) { stop.request_stop(); });
  };
  EXPECT_THROW(wait(), Error);
  EXPECT_TRUE(std::filesystem::exists(file)) << "it is not ours";
}

TEST_F(Lock, OnAVolumeThatCannotBeWrittenToIsAnError) {
  const auto wait = [&] { VolumeLock(file / "no" / "folder", "x", options("host:1"), {}, {}); };
  EXPECT_THROW(wait(), Error);
}

}  // namespace
}  // namespace pm::hub
