// SPDX-License-Identifier: Apache-2.0
// Runs a subcommand on ranks that are processes. The first process becomes the launcher, which starts the program again
// once per rank.
#pragma once
#include <functional>
#include <string>

#include "worker/cli/options.h"
#include "worker/comm/membership/status_table.h"
#include "worker/engine/ranks/rank_group.h"
#include "worker/launch/launcher.h"

namespace pm::cli {

/// The role of this process. The launcher adds --segment, --rank and --group-plan to the arguments of its children.
struct ProcessOptions {
  std::string segment;  ///< shared memory segment of the ranks; empty: this process becomes the launcher
  int rank = 0;
  std::string plan;        ///< the user's plan file
  std::string group_plan;  ///< the launcher's plan file, which all ranks on this node share
  int hang_timeout_seconds = 60;
  launch::Nodes nodes;  ///< the nodes that share the ranks of the plan
  /// Returns the placement of this process among `size` ranks.
  comm::RankPlacement placement(int size) const;
  const std::string& plan_file() const { return group_plan.empty() ? plan : group_plan; }
  bool is_rank() const { return !segment.empty(); }
  void add_to(CLI::App& subcommand);
};

/// The settings of the launcher process itself.
struct LauncherOptions {
  int drain_seconds = 60;
  std::function<void(comm::StatusTable&)> start_admin_server, stop_admin_server;
};

/// Starts one child process for each rank that the plan places on this node, and returns the replica's exit code.
int launch_ranks(const Program&, const ProcessOptions&, const Setup&, LauncherOptions);
/// Runs one rank: it loads its shard, then rank 0 runs `leader` and the others follow it. Errors are written to the
/// status table. Returns the exit code.
int run_rank(const ProcessOptions&, const engine::RankGroupConfig&,
             const std::function<int(engine::RankGroup&)>& leader);

}  // namespace pm::cli
