// SPDX-License-Identifier: Apache-2.0
// Tests the launcher with real processes: how groups end, what is reported, and that nothing is left behind.
#include "worker/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "worker/comm/membership/status_table.h"
#include "worker/launch/environment.h"

namespace pm::launch::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Starts a launcher as a process. The test ends only when it, its ranks and its files are gone.
class Launched {
 public:
  Launched(const std::string& scenario, int ranks) : ranks_(ranks) {
    std::ofstream(message_path_).flush();  // the kubelet creates the file too
    std::vector<std::string> arguments{"unit_launch",         "--launch",   scenario, segment,
                                       std::to_string(ranks), message_path_};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
  }
  ~Launched() {
    if (!ended_) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    std::filesystem::remove(message_path_);
    std::filesystem::remove(message_path_ + ".ops");
    for (const std::string& file : files()) std::filesystem::remove("/dev/shm/" + file);
  }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    ended_ = true;
    for (const auto deadline = Clock::now() + 5s; !processes().empty() && Clock::now() < deadline;)
      std::this_thread::sleep_for(1ms);
    EXPECT_THAT(processes(), testing::IsEmpty());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// Waits until the status table shows all ranks doing what `met` looks for.
  void wait_until(const std::function<bool(comm::RankStatus&)>& met) {
    const auto deadline = Clock::now() + 60s;
    while (Clock::now() < deadline) {
      if (std::filesystem::exists("/dev/shm/" + segment + ".status") &&
          std::filesystem::file_size("/dev/shm/" + segment + ".status") > 0) {
        const auto status_table = comm::StatusTable::open(segment, ranks_);
        bool all = true;
        for (int r = 0; r < ranks_; ++r) {
          all &= met(status_table->rank(r));
          pids_[r] = status_table->rank(r).pid;
        }
        if (all) return;
      }
      std::this_thread::sleep_for(1ms);
    }
    FAIL() << "ranks did not come so far";
  }
  void wait_until_ready() {
    wait_until([](comm::RankStatus& rank) { return rank.state == static_cast<uint32_t>(comm::RankState::Ready); });
  }
  nlohmann::json message() const { return nlohmann::json::parse(text_of(message_path_)); }
  std::string ops() const { return text_of(message_path_ + ".ops"); }
  bool message_is_empty() const { return text_of(message_path_).empty(); }
  pid_t pid() const { return pid_; }
  pid_t rank_pid(int r) const { return pids_[r]; }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().starts_with(segment)) out.push_back(entry.path().filename());
    return out;
  }
  /// Returns the processes that have the name of this group in their command line.
  std::vector<std::string> processes() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator("/proc"))
      if (const std::string line = text_of(entry.path() / "cmdline"); line.find(segment) != std::string::npos)
        out.push_back(entry.path().filename());
    return out;
  }
  const std::string segment = "parallelmodel-launchtest-" + std::to_string(getpid()) + "-" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();

 private:
  const std::string message_path_ = std::filesystem::temp_directory_path() / segment;
  int ranks_;
  pid_t pid_ = -1;
  pid_t pids_[8] = {};
  bool ended_ = false;
};

TEST(Launcher, SucceedsWhenAllRanksDo) {
  Launched group("well", 3);
  EXPECT_EQ(group.exit_code(), 0);
  EXPECT_TRUE(group.message_is_empty());
  EXPECT_EQ(group.ops(), "3 stopped");
  EXPECT_THAT(group.files(), testing::IsEmpty());
}

TEST(Launcher, ReportsTheRankThatFailedAndNotTheEchoOfTheOthers) {
  Launched group("model", 3);
  EXPECT_EQ(group.exit_code(), 3);
  EXPECT_EQ(group.message(), (nlohmann::json{{"rank", 1},
                                             {"reason", "ModelUnreadable"},
                                             {"exitCode", 3},
                                             {"message", "tensor 'wte' is missing; expected \"transformer.wte\""}}));
  EXPECT_THAT(group.files(), testing::IsEmpty());
}

TEST(Launcher, ReportsARankThatLeavesWithoutAReason) {
  Launched group("silent-exit", 2);
  EXPECT_EQ(group.exit_code(), 9);
  EXPECT_EQ(group.message()["reason"], "RankLost");
  EXPECT_EQ(group.message()["message"], "rank 1 ended with exit code 9");
}

TEST(Launcher, AKilledRankEndsTheGroupWithinTwoSeconds) {
  Launched group("reduce", 3);
  group.wait_until([](comm::RankStatus& rank) { return rank.steps > 10; });
  const auto killed = Clock::now();
  kill(group.rank_pid(1), SIGKILL);
  EXPECT_EQ(group.exit_code(), 5);
  EXPECT_LT(Clock::now() - killed, 4s);  // at most 1 s of exit grace, and time for a busy machine
  EXPECT_EQ(group.message()["rank"], 1);
  EXPECT_EQ(group.message()["reason"], "RankLost");
  EXPECT_THAT(group.message()["message"].get<std::string>(), HasSubstr("rank 1 died of signal 9"));
  EXPECT_EQ(group.message()["exitCode"], 5);
  EXPECT_THAT(group.files(), testing::IsEmpty());
}

TEST(Launcher, AStoppedRankIsHungAndIsKilled) {
  Launched group("reduce", 2);
  group.wait_until([](comm::RankStatus& rank) { return rank.steps > 10; });
  kill(group.rank_pid(1), SIGSTOP);
  EXPECT_EQ(group.exit_code(), 5);
  EXPECT_EQ(group.message()["reason"], "RankHung");
  EXPECT_EQ(group.message()["rank"], 1);
  EXPECT_THAT(group.message()["message"].get<std::string>(), HasSubstr("frozen"));
}

TEST(Launcher, NoStepWithOpenRequestsIsAHang) {
  Launched group("stuck", 2);
  EXPECT_EQ(group.exit_code(), 5);
  EXPECT_EQ(group.message()["reason"], "RankHung");
  EXPECT_EQ(group.message()["rank"], 1) << "the one with fewer steps";
}

TEST(Launcher, LoadingThatStandsStillIsAHang) {
  Launched group("starved", 2);
  EXPECT_EQ(group.exit_code(), 5);
  EXPECT_EQ(group.message()["rank"], 1);
  EXPECT_THAT(group.message()["message"].get<std::string>(), HasSubstr("500 of 1000 bytes"));
}

TEST(Launcher, AFollowerThatLeavesUndismissedEndsTheGroup) {
  Launched group("desert", 2);
  EXPECT_EQ(group.exit_code(), 5);
  EXPECT_EQ(group.message()["message"], "rank 1 ended while rank 0 serves");
}

TEST(Launcher, TheFirstSigtermDrainsThroughRankZero) {
  Launched group("serve", 3);
  group.wait_until_ready();
  kill(group.rank_pid(1), SIGTERM);  // followers ignore it
  kill(group.pid(), SIGTERM);
  EXPECT_EQ(group.exit_code(), 0);
  EXPECT_TRUE(group.message_is_empty());
  EXPECT_THAT(group.files(), testing::IsEmpty());
}

TEST(Launcher, ADrainThatTakesTooLongIsCutShort) {
  Launched group("serve-slowly", 2);
  group.wait_until_ready();
  kill(group.pid(), SIGTERM);
  EXPECT_EQ(group.exit_code(), 6);
  EXPECT_EQ(group.message()["reason"], "Interrupted");
}

TEST(Launcher, ASecondSignalKillsAtOnce) {
  Launched group("deaf", 2);
  group.wait_until_ready();
  kill(group.pid(), SIGTERM);
  std::this_thread::sleep_for(100ms);  // two pending signals of one kind are one
  EXPECT_EQ(group.processes().size(), 3u);
  kill(group.pid(), SIGTERM);
  EXPECT_EQ(group.exit_code(), 6);
  EXPECT_THAT(group.files(), testing::IsEmpty());
}

TEST(Launcher, RanksDieWithTheLauncher) {
  Launched group("deaf", 2);
  group.wait_until_ready();
  kill(group.pid(), SIGKILL);
  EXPECT_EQ(group.exit_code(), 128 + SIGKILL);
}

TEST(Launcher, ReapsOrphansWhenItIsTheirReaper) {
  Launched group("orphan", 1);
  EXPECT_EQ(group.exit_code(), 0);
}

TEST(Launcher, GivesEachRankItsShareOfTheThreads) {
  Launched group("environment", 2);
  EXPECT_EQ(group.exit_code(), 0);
  const std::string rank1 = text_of("/dev/shm/" + group.segment + ".env1");
  EXPECT_THAT(rank1, HasSubstr("OMP_NUM_THREADS="));
  EXPECT_THAT(rank1, HasSubstr("OMP_WAIT_POLICY=PASSIVE\nGOMP_SPINCOUNT=200\n"));
}

TEST(RankEnvironment, KeepsWhatTheUserSet) {
  EXPECT_EQ(threads_per_rank(16, 3), 5);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
  const auto lines = rank_environment({"OMP_NUM_THREADS=7", "HOME=/tmp"}, 4);
  EXPECT_THAT(lines, testing::Contains("OMP_NUM_THREADS=7"));
  EXPECT_THAT(lines, testing::Not(testing::Contains("OMP_NUM_THREADS=4")));
  EXPECT_THAT(lines, testing::Contains("OMP_WAIT_POLICY=PASSIVE"));
}

}  // namespace
}  // namespace pm::launch::test
