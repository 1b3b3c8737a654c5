// SPDX-License-Identifier: Apache-2.0
// Tests ranks as processes over a segment: they give the same bits as ranks in one process, and survive a killed rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>

#include "tests/unit/worker/comm/children.h"
#include "tests/unit/worker/comm/group.h"
#include "worker/base/error.h"
#include "worker/comm/channel.h"
#include "worker/comm/membership/status_table.h"

extern char** environ;

namespace pm::comm::test {
namespace {

at::Tensor part_of(int rank, int64_t numel) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + rank);
  return at::randn({numel}, generator);
}

/// Returns a checksum that any changed bit changes.
uint64_t fingerprint(const at::Tensor& tensor) {
  uint64_t hash = 1469598103934665603ull;
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
  return hash;
}

constexpr int64_t sizes[] = {1, 1000, 1024, 70'001, 1'000'000};

int64_t reduce_all_sizes(Communicator& rank) {
  uint64_t hash = 0;
  for (const int64_t numel : sizes) {
    at::Tensor mine = part_of(rank.rank(), numel);
    rank.all_reduce(mine);
    hash = hash * 31 + fingerprint(mine);
  }
  return static_cast<int64_t>(hash);
}

int wait_for_exit(int pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Starts n processes in a role; afterwards the status table shows what each did.
struct Processes {
  Processes(const std::string& role, int n) : n(n) {
    create_segment(segment.name, n, 1 << 18);
    status_table = StatusTable::create(segment.name, n);
    for (int r = 0; r < n; ++r) pids.push_back(start_child({role, segment.name, std::to_string(r), std::to_string(n)}));
  }
  TestSegment segment;
  int n;
  std::shared_ptr<StatusTable> status_table;
  std::vector<int> pids;
};

TEST(Processes, AllReduceGivesTheBitsOfTheInProcessGroup) {
  for (const int n : {2, 3}) {
    Group threads(Backend::InProcess, n);
    std::vector<int64_t> expected(n);
    threads.all([&](Communicator& rank) { expected[rank.rank()] = reduce_all_sizes(rank); });
    Processes processes("reduce", n);
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(wait_for_exit(processes.pids[r]), 0) << processes.status_table->rank(r).message;
      EXPECT_EQ(processes.status_table->rank(r).steps.load(), expected[r]) << "rank " << r << " of " << n;
      EXPECT_EQ(expected[r], expected[0]);
    }
  }
}

TEST(Processes, WhenOneIsKilledInTheMiddleOfAllReducesTheOthersEndWithRankLost) {
  Processes processes("reduce-for-ever", 3);
  const auto patience = std::chrono::steady_clock::now() + 60s;
  while (processes.status_table->rank(1).steps < 100 && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(1ms);
  ASSERT_GE(processes.status_table->rank(1).steps, 100);
  kill(processes.pids[1], SIGKILL);
  EXPECT_EQ(wait_for_exit(processes.pids[1]), 128 + SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  abort_segment(processes.segment.name, "RankLost: rank 1 died of signal 9");  // as the launcher does
  for (const int r : {0, 2}) {
    EXPECT_EQ(wait_for_exit(processes.pids[r]), 5);
    EXPECT_STREQ(processes.status_table->rank(r).reason, "CommunicatorAborted");
    EXPECT_THAT(std::string(processes.status_table->rank(r).message), testing::HasSubstr("rank 1 died of signal 9"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 10s);
}

TEST(Processes, WithoutALauncherADeadPeerIsSeenByTheDeadline) {
  Processes processes("reduce-briefly", 3);  // rank 1 leaves after 100 rounds; the deadline is 2 s
  EXPECT_EQ(wait_for_exit(processes.pids[1]), 0);
  for (const int r : {0, 2}) {
    EXPECT_EQ(wait_for_exit(processes.pids[r]), 5);
    EXPECT_THAT(std::string(processes.status_table->rank(r).message), testing::HasSubstr("waited 2000 ms for rank 1"));
  }
}

TEST(Processes, AChannelCarriesMessagesToAFollower) {
  Processes processes("follow", 2);
  const auto channel = shared_memory_channel(processes.segment.name, 1, 20s);
  for (uint32_t i = 0; i < 3000; ++i) {
    std::vector<uint8_t> message(i % 900 + 4);
    std::memcpy(message.data(), &i, 4);
    channel->send(message);
  }
  channel->send({});
  EXPECT_EQ(wait_for_exit(processes.pids[1]), 0) << processes.status_table->rank(1).message;
  EXPECT_EQ(wait_for_exit(processes.pids[0]), 0);
  EXPECT_EQ(processes.status_table->rank(1).steps, 3000);
}

void follow(Channel& channel, std::atomic<int64_t>& steps) {
  for (uint32_t expected = 0;; ++expected) {
    const auto message = channel.receive(20s);
    if (!message) throw std::runtime_error("no message");
    if (message->empty()) return;
    uint32_t number = 0;
    std::memcpy(&number, message->data(), 4);
    if (number != expected || message->size() != expected % 900 + 4)
      throw std::runtime_error("message " + std::to_string(number) + " out of order");
    ++steps;
  }
}

}  // namespace

int start_child(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"unit_comm", "--child"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : all) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0)
    throw std::runtime_error("cannot start /proc/self/exe");
  return pid;
}

int run_child(const std::vector<std::string>& arguments) {
  const std::string &role = arguments.at(0), &segment = arguments.at(1);
  const int rank = std::stoi(arguments.at(2)), size = std::stoi(arguments.at(3));
  const auto status_table = StatusTable::open(segment, size);
  std::atomic<int64_t>& steps = status_table->rank(rank).steps;
  try {
    const auto group = shared_memory(segment, rank, size, role == "reduce-briefly" ? 2s : 20s);
    at::Tensor tensor = at::ones({4096});
    if (role == "reduce") steps = reduce_all_sizes(*group);
    if (role == "reduce-for-ever")
      for (;; ++steps) group->all_reduce(tensor);
    if (role == "reduce-briefly") {
      status_table->rank(rank).state =
          static_cast<uint32_t>(RankState::Ready);  // processes start at different times: no deadline yet
      for (int r = 0; r < size; ++r)
        while (status_table->rank(r).state == static_cast<uint32_t>(RankState::Starting))
          std::this_thread::sleep_for(1ms);
      for (; rank != 1 || steps < 100; ++steps) group->all_reduce(tensor);
    }
    if (role == "follow" && rank > 0) follow(*shared_memory_channel(segment, rank, 20s), steps);
    return 0;
  } catch (const Error& error) {
    status_table->fail(rank, error.reason, error.what(), exit_code(error.kind));
    return exit_code(error.kind);
  } catch (const std::exception& error) {
    status_table->fail(rank, Reason::InternalError, error.what(), 1);
    return 1;
  }
}

}  // namespace pm::comm::test
