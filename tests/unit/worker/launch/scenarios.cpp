// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/launch/scenarios.h"

#include <ATen/ATen.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "worker/base/error.h"
#include "worker/comm/channel.h"
#include "worker/comm/communicator.h"
#include "worker/comm/membership/status_table.h"
#include "worker/launch/launcher.h"

namespace pm::launch::test {
namespace {

using namespace std::chrono_literals;

volatile std::sig_atomic_t stop_asked = 0;

struct RankLife {
  std::string scenario, segment;
  int size, rank;
  std::shared_ptr<comm::StatusTable> status_table;
  comm::RankStatus& status() const { return status_table->rank(rank); }

  void set(comm::RankState state) const { status().state = static_cast<uint32_t>(state); }
  void reduce_until(const std::function<bool()>& end) const {
    const auto group = comm::shared_memory(segment, rank, size, 30s);
    at::Tensor tensor = at::ones({64});
    for (; !end(); ++status().steps) group->all_reduce(tensor);
  }
  /// Serves: rank 0 waits for a signal, then dismisses the followers, which wait for that message.
  void serve() const {
    if (rank == 0) {
      while (!stop_asked) std::this_thread::sleep_for(1ms);
      set(comm::RankState::Draining);
      for (int r = 1; r < size; ++r) comm::shared_memory_channel(segment, r, 5s)->send(std::vector<uint8_t>{1});
    } else if (!comm::shared_memory_channel(segment, rank, 5s)->receive(60s)) {
      throw std::runtime_error("not dismissed");
    }
  }
  void refuse_model() const {
    if (rank != 1) return reduce_until([] { return false; });
    status_table->fail(1, Reason::ModelUnreadable, "tensor 'wte' is missing; expected \"transformer.wte\"", 3);
    comm::abort_segment(segment, "tensor 'wte' is missing");
    std::this_thread::sleep_for(300ms);  // rank 0 ends first, with the echo of this failure
    throw Error(Reason::ModelUnreadable, "tensor 'wte' is missing");
  }
  /// Leaves a grandchild to the launcher, which ends at once; returns true when it was reaped.
  bool leave_orphan() const {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
      const pid_t orphan = fork();
      if (orphan == 0) _exit(0);
      _exit(write(ends[1], &orphan, sizeof orphan) == sizeof orphan ? 0 : 1);
    }
    waitpid(child, nullptr, 0);
    pid_t orphan = 0;
    if (read(ends[0], &orphan, sizeof orphan) != sizeof orphan) return false;
    for (int i = 0; i < 5000 && kill(orphan, 0) == 0; ++i) std::this_thread::sleep_for(1ms);
    return kill(orphan, 0) != 0;
  }
  int live() const {
    if (scenario == "well") set(comm::RankState::Ready);
    if (scenario == "reduce") set(comm::RankState::Ready), reduce_until([] { return false; });
    if (scenario == "serve" || scenario == "serve-slowly") set(comm::RankState::Ready), serve();
    if (scenario == "serve-slowly" && rank == 0) std::this_thread::sleep_for(60s);
    if (scenario == "deaf")
      std::signal(SIGTERM, SIG_IGN), set(comm::RankState::Ready), std::this_thread::sleep_for(60s);
    if (scenario == "model") refuse_model();
    if (scenario == "orphan" && !leave_orphan()) return 1;
    if (scenario == "silent-exit" && rank == 1) return 9;
    if (scenario == "silent-exit") reduce_until([] { return false; });
    if (scenario == "desert") set(comm::RankState::Ready), std::this_thread::sleep_for(rank == 1 ? 0s : 60s);
    if (scenario == "stuck") {
      set(comm::RankState::Ready);
      status().steps = 17 - rank;
      status().open_requests = rank == 0 ? 2 : 0;
      std::this_thread::sleep_for(60s);
    }
    if (scenario == "starved") {
      status().load_total = 1000;
      status().load_bytes = 1000 - 500 * rank;
      set(rank == 0 ? comm::RankState::Starting : comm::RankState::Loading);
      std::this_thread::sleep_for(60s);
    }
    if (scenario == "environment") {
      std::ofstream out("/dev/shm/" + segment + ".env" + std::to_string(rank));
      for (const char* name : {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"})
        out << name << "=" << (std::getenv(name) ? std::getenv(name) : "") << "\n";
    }
    return 0;
  }
};

}  // namespace

int run_rank(const std::vector<std::string>& arguments) {
  const int size = std::stoi(arguments.at(2)), rank = std::stoi(arguments.at(3));
  if (rank == 0)
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { stop_asked = 1; });
  const RankLife life{arguments[0], arguments[1], size, rank, comm::StatusTable::open(arguments[1], size)};
  const comm::Heartbeat heartbeat(life.status_table, rank);
  try {
    return life.live();
  } catch (const Error& error) {
    life.status_table->fail(rank, error.reason, error.what(), exit_code(error.kind));
    return exit_code(error.kind);
  }
}

int run_launcher(const std::vector<std::string>& arguments) {
  Options options;
  const std::string scenario = arguments.at(0);
  options.segment = arguments.at(1);
  options.ranks = std::stoi(arguments.at(2));
  options.termination_message_path = arguments.at(3);
  options.bytes_per_rank = 1 << 16;
  options.heartbeat_timeout = 1500ms;
  options.hang_timeout = 700ms;
  options.load_stall = 700ms;
  options.exit_grace = 1000ms;
  options.drain = scenario == "serve-slowly" ? 500ms : 20'000ms;
  options.arguments = [&](int rank) {
    return std::vector<std::string>{
        "unit_launch", "--rank", scenario, options.segment, std::to_string(options.ranks), std::to_string(rank)};
  };
  options.start_admin_server = [&](comm::StatusTable& status_table) {
    std::ofstream(arguments[3] + ".ops") << status_table.size();
  };
  options.stop_admin_server = [&](comm::StatusTable&) {
    std::ofstream(arguments[3] + ".ops", std::ios::app) << " stopped";
  };
  if (scenario == "orphan") prctl(PR_SET_CHILD_SUBREAPER, 1);
  return run(options);
}

}  // namespace pm::launch::test
