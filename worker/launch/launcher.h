// The launcher: PID 1 of a pod, or the parent in a terminal. Starts one process per rank of this program, watches them, and ends the
// group with the first failed rank's reason. It never takes part in the work: the status board and the abort of the segment are its only words.
// Of a group over several nodes there is one on each, which starts the ranks of its node and tells the others what becomes of them.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/comm/status.h"
#include "worker/launch/nodes.h"

namespace pm::launch {

struct Options {
  int ranks = 1;                                         ///< of the group
  Nodes nodes;
  /// Name of the group in /dev/shm: the communicator's segment and the status board. See segment_name().
  std::string segment;
  int64_t bytes_per_rank = 4 << 20;                      ///< communicator buffer of each rank
  /// The whole argv of a rank, argv[0] included; executed as /proc/self/exe.
  std::function<std::vector<std::string>(int rank)> arguments;

  std::chrono::milliseconds hang_timeout{60'000};        ///< no step while requests are open
  std::chrono::milliseconds drain{60'000};               ///< from the first SIGTERM, or the first rank that ended well, to the end of all
  std::chrono::milliseconds frozen{5'000};               ///< silence of a heartbeat that has begun
  std::chrono::milliseconds load_stall{120'000};         ///< no byte read while loading
  std::chrono::milliseconds farewell{2'000};             ///< what survivors of a failure get to answer and leave
  /// Written on failure if the file exists and can be written; empty: none.
  std::string termination_message_path = "/dev/termination-log";
  /// The ops server of this process: started after the ranks, stopped after their end. The board stays valid until stop_ops returns.
  std::function<void(comm::StatusBoard&)> start_ops, stop_ops;
  Dealt here() const { return deal(ranks, nodes.count, nodes.here); }
};

/// Runs the group to its end and returns the exit code of DESIGN 4.7: 0 when all ranks ended well, a failed rank's own code, 5 when a rank
/// was lost, 6 when a second SIGTERM or SIGINT, or the end of `drain`, cut it short. The first SIGTERM or SIGINT is passed to rank 0, which
/// dismisses the others; they ignore both. A launcher that is not node 0's asks node 0 to do so, and stays until rank 0 has dismissed its ranks. Call it from the main thread before other threads exist: ranks die with the thread that forked them.
int run(const Options& options);

/// A name in /dev/shm that no two groups share: process id and incarnation.
std::string segment_name(int64_t incarnation = 0);

}  // namespace pm::launch
