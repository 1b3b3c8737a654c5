// SPDX-License-Identifier: Apache-2.0
// The communicator over NCCL itself, between processes. With fewer GPUs than ranks they share one: NCCL refuses that
// unless each rank claims to be on another host (NCCL_HOSTID); then the ranks use loopback sockets, which is slow, but
// makes every call.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <thread>

#include "tests/gpu/kernels/present.h"
#include "worker/base/error.h"
#include "worker/comm/membership/device_communicator.h"
#include "worker/comm/shared_memory/shm_file.h"

extern char** environ;

namespace pm::comm {
namespace {

using namespace std::chrono_literals;

int gpus() { return c10::cuda::device_count(); }

void require(bool so, const char* what) {
  if (!so) throw std::logic_error(what);
}

/// Runs one of each operation and compares it with the same computation on the CPU. Throws std::logic_error that names
/// the first operation that differs.
void operations(Communicator& rank, at::Device device) {
  const int n = rank.size(), me = rank.rank();
  const auto numbers = [](int of) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(of));
    return at::randn({100'003}, generator);
  };
  at::Tensor sum = numbers(0), mine = numbers(me).to(device);
  for (int r = 1; r < n; ++r) sum = sum + numbers(r);
  rank.all_reduce(mine);
  require(at::allclose(mine.cpu(), sum, 1e-5, 1e-5), "all_reduce");
  std::vector<int64_t> uneven, even(static_cast<size_t>(n), 4);
  for (int r = 0; r < n; ++r) uneven.push_back(3 * r + 1);
  for (const auto& rows : {uneven, even}) {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < n; ++r) parts.push_back(at::full({rows[static_cast<size_t>(r)], 5}, r, at::kHalf));
    const at::Tensor all = at::cat(parts), part = parts[static_cast<size_t>(me)].to(device);
    require(at::equal(rank.all_gatherv(part, rows).cpu(), all), "all_gatherv");
    const at::Tensor gathered = rank.gatherv(part, rows, n - 1);
    require(gathered.defined() == (me == n - 1) && (me != n - 1 || at::equal(gathered.cpu(), all)), "gatherv");
  }
  at::Tensor rank_of_root = at::full({1000}, me, at::TensorOptions(at::kLong).device(device));
  rank.broadcast(rank_of_root, n - 1);
  require(at::equal(rank_of_root.cpu(), at::full({1000}, n - 1, at::kLong)), "broadcast");
  at::Tensor handed = at::full({70'000}, me, at::TensorOptions(device));
  if (me > 0) rank.recv(handed, me - 1);
  require(handed.cpu()[69'999].item<float>() == 0, "recv");  // what rank 0 began with
  if (me + 1 < n) rank.send(handed, me + 1);
  rank.check();
}

/// Runs a rank; exit status 0: success, 5: the group was aborted, 1: anything else.
int child(const std::string& role, const std::string& segment, int rank, int size) {
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(rank % gpus()));
  const c10::DeviceGuard here(device);
  try {
    const auto group = device_communicator({.host = shared_memory(segment, rank, size, 60s),
                                            .segment = Segment::open(segment, size),
                                            .device = device,
                                            .deadline = 60s});
    operations(*group, device);
    at::Tensor more = at::ones({1000}, at::TensorOptions(device));
    while (role == "for-ever") {
      group->all_reduce(more);
      more.cpu();
      group->check();
      more.fill_(1);
    }
    return 0;
  } catch (const Error& error) {
    std::cerr << "rank " << rank << ": " << error.what() << "\n";
    return 5;
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << ": " << error.what() << "\n";
    return 1;
  }
}

struct Ranks {
  Ranks(const std::string& role, int n, bool hosts_of_their_own)
      : segment("parallelmodel-nccl-test-" + std::to_string(getpid())) {
    create_segment(segment, n, 1 << 18);
    for (int r = 0; r < n; ++r) {
      std::vector<std::string> words{"/proc/self/exe", "--child", role, segment, std::to_string(r), std::to_string(n)};
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      if (hosts_of_their_own)
        setenv("NCCL_HOSTID", ("host" + std::to_string(r)).c_str(), 1);
      else
        unsetenv("NCCL_HOSTID");
      int pid = 0;
      if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) != 0)
        throw std::runtime_error("no child");
      pids.push_back(pid);
    }
  }
  ~Ranks() { ShmFile::remove(segment); }
  static int code(int pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string segment;
  std::vector<int> pids;
};

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_test::gpu_present()) GTEST_SKIP() << "no GPU here: no device node of one";
    ASSERT_GT(gpus(), 0) << "there is a GPU, and the driver shows none to this process";
  }
};

TEST_F(Nccl, EveryOperationBetweenTwoAndThreeRanks) {
  for (const int n : {2, 3}) {
    const Ranks ranks("once", n, gpus() < n);
    for (const int pid : ranks.pids) EXPECT_EQ(Ranks::code(pid), 0);
  }
}

TEST_F(Nccl, WhenARankIsKilledTheOtherEndsWithinTwoSeconds) {
  const Ranks ranks("for-ever", 2, gpus() < 2);
  std::this_thread::sleep_for(15s);  // NCCL joins over sockets in some seconds
  kill(ranks.pids[1], SIGKILL);
  EXPECT_EQ(Ranks::code(ranks.pids[1]), 128 + SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  abort_segment(ranks.segment, "RankLost: rank 1 died of signal 9");  // as the launcher does
  EXPECT_EQ(Ranks::code(ranks.pids[0]), 5);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 2s);
}

TEST_F(Nccl, TwoRanksOnOneDeviceAreRefused) {
  if (gpus() > 1) GTEST_SKIP() << "each rank has a GPU here";
  const Ranks ranks("once", 2, false);
  for (const int pid : ranks.pids) EXPECT_EQ(Ranks::code(pid), 5);
}

}  // namespace

int child_of(int argc, char** argv) {
  return argc == 6 ? child(argv[2], argv[3], std::stoi(argv[4]), std::stoi(argv[5])) : 2;
}

}  // namespace pm::comm

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--child") return pm::comm::child_of(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
