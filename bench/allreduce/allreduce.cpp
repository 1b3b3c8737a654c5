// SPDX-License-Identifier: Apache-2.0
// Measures the latency of all_reduce for two ranks on one host: shared memory, TCP between two nodes on this host, and
// Gloo over loopback, in turns within one run.
//   bench_allreduce [RANKS=2] [ROUNDS=10] [PORT=29517]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/allreduce/gloo.h"
#include "worker/comm/communicator.h"
#include "worker/comm/membership/membership.h"
#include "worker/comm/shared_memory/shm_file.h"
#include "worker/comm/wait/cpus.h"

namespace {

using AllReduce = std::function<void(at::Tensor&)>;

/// Returns the microseconds of each of `calls` calls, after as many warm-up calls: ranks that slept in sockets wake on
/// one CPU, and the kernel takes some milliseconds to separate them.
void measure(const AllReduce& all_reduce, int64_t bytes, int calls, std::vector<double>& microseconds) {
  at::Tensor tensor = at::zeros({bytes / 4});
  for (int i = 0; i < calls; ++i) all_reduce(tensor);
  for (int i = 0; i < calls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    all_reduce(tensor);
    microseconds.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
}

struct Summary {
  explicit Summary(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    least = all.front(), median = all[all.size() / 2], p90 = all[all.size() * 9 / 10];
  }
  double least, median, p90;
};

std::string segment_of_node(const std::string& segment, int node) { return segment + "-" + std::to_string(node); }

int rank_main(const std::string& segment, int rank, int size, int rounds, unsigned short port) {
  at::set_num_threads(1);
  const auto shared = pm::comm::shared_memory(segment, rank, size, std::chrono::seconds(60));
  const AllReduce ours = [&](at::Tensor& tensor) { shared->all_reduce(tensor); };
  pm::comm::Membership membership({.segment = segment_of_node(segment, rank),
                                   .rank = rank,
                                   .size = size,
                                   .first = rank,
                                   .count = 1,
                                   .deadline = std::chrono::seconds(60)},
                                  pm::comm::StatusTable::open(segment, size));
  membership.connect_all();
  const AllReduce nodes = [&](at::Tensor& tensor) { membership.communicator()->all_reduce(tensor); };
  const AllReduce gloo = gloo_all_reduce(rank, size, port);
  if (rank == 0)
    std::printf(
        "%d ranks, %d CPUs; microseconds\n%-10s %26s %26s %26s %15s\n%-10s %8s %8s %8s %8s %8s %8s %8s %8s %8s %7s "
        "%7s\n",
        size, pm::comm::available_cpus(), "", "shared memory", "TCP, a node each", "Gloo", "Gloo / ours", "bytes",
        "min", "median", "p90", "min", "median", "p90", "min", "median", "p90", "memory", "TCP");
  for (const int64_t bytes : {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}) {
    const int calls = bytes > 1 << 20 ? 20 : 200;
    std::vector<double> our_times, node_times, gloo_times;
    for (int round = 0; round < rounds; ++round) {
      measure(ours, bytes, calls * 5, our_times);
      measure(nodes, bytes, calls, node_times);
      measure(gloo, bytes, calls, gloo_times);
    }
    const Summary a(our_times), t(node_times), b(gloo_times);
    if (rank == 0)
      std::printf("%-10ld %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %7.1f %7.1f\n",
                  static_cast<long>(bytes), a.least, a.median, a.p90, t.least, t.median, t.p90, b.least, b.median,
                  b.p90, b.median / a.median, b.median / t.median);
  }
  shared->barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 10;
  const auto port = static_cast<unsigned short>(argc > 3 ? std::atoi(argv[3]) : 29517);
  if (size < 2 || rounds < 1)
    return std::fprintf(stderr, "usage: bench_allreduce [RANKS >= 2] [ROUNDS >= 1] [PORT]\n"), 2;
  const std::string segment = "parallelmodel-bench-" + std::to_string(getpid());
  pm::comm::create_segment(segment, size, 4 << 20);
  const auto status_table = pm::comm::StatusTable::create(
      segment, size);  // addresses of ranks on other nodes, which launchers exchange otherwise
  status_table->token()[0] = status_table->token()[1] = 1;
  for (int rank = 0; rank < size; ++rank) {
    pm::comm::create_segment(segment_of_node(segment, rank), size, 8192);
    std::strcpy(status_table->rank(rank).address, "127.0.0.1");
  }
  std::fflush(stdout);
  for (int rank = 0; rank < size; ++rank)
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int code = rank_main(segment, rank, size, rounds, port);
      std::fflush(stdout);
      _exit(code);
    }
  int bad = 0;
  for (int rank = 0, status = 0; rank < size; ++rank) wait(&status), bad |= status;
  for (int rank = 0; rank < size; ++rank) pm::comm::ShmFile::remove(segment_of_node(segment, rank));
  pm::comm::ShmFile::remove(segment + ".status");
  pm::comm::ShmFile::remove(segment);
  return bad == 0 ? 0 : 1;
}
