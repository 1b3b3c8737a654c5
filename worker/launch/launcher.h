// SPDX-License-Identifier: Apache-2.0
// Runs the launcher: PID 1 of a pod, or the parent process in a terminal. It starts one process per rank of this
// program, watches them, and ends the group with the reason of the first failed rank. It takes no part in the
// computation; it acts through the status table and the abort of the segment only. In a group over several nodes each
// node has a launcher, which starts the ranks of its node and reports their state to the others.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "contract/termination.h"
#include "worker/comm/membership/status_table.h"
#include "worker/launch/nodes.h"

namespace pm::launch {

struct Options {
  int ranks = 1;  ///< number of ranks of the group
  Nodes nodes;
  /// Name of the group in /dev/shm: the segment of the communicator and the status table (segment_name()).
  std::string segment;
  int64_t bytes_per_rank = 4 << 20;  ///< communicator buffer of each rank
  /// The whole argv of a rank, argv[0] included; executed as /proc/self/exe.
  std::function<std::vector<std::string>(int rank)> arguments;

  std::chrono::milliseconds hang_timeout{60'000};  ///< longest time without a step while requests are open
  std::chrono::milliseconds drain{
      60'000};  ///< time from the first SIGTERM, or the first successful end of a rank, to the end of all ranks
  std::chrono::milliseconds heartbeat_timeout{5'000};  ///< longest silence of a heartbeat that has started
  std::chrono::milliseconds load_stall{120'000};       ///< longest time without a byte read while loading
  std::chrono::milliseconds exit_grace{
      2'000};  ///< time that the surviving ranks have after a failure to answer requests and exit
  /// Termination message, written on failure if the file exists and can be written; empty for none.
  std::string termination_message_path = termination_log;
  /// Callbacks for the admin server of this process, which is started after the ranks and stopped after their end. The
  /// status table stays valid until stop_admin_server returns.
  std::function<void(comm::StatusTable&)> start_admin_server, stop_admin_server;
  Slice local_slice() const { return partition(ranks, nodes.count, nodes.index); }
};

/// Runs the group to its end and returns the exit code: 0 when all ranks succeeded, the code of a failed rank, 5 when a
/// rank was lost, 6 when a second SIGTERM or SIGINT, or the end of `drain`, cut it short. The first SIGTERM or SIGINT
/// is passed to rank 0, which dismisses the other ranks; they ignore both. A launcher on another node than 0 asks node
/// 0 to stop and stays until rank 0 has dismissed its ranks. Must be called from the main thread before other threads
/// exist: ranks die with the thread that forked them.
int run(const Options& options);

/// Returns a name in /dev/shm that no two groups share: process id and replica generation.
std::string segment_name(int64_t replica_generation = 0);

}  // namespace pm::launch
