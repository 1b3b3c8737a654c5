// Runs a verb on ranks that are processes: the first call of the program becomes the launcher, which starts it again once per rank.
#pragma once
#include <functional>
#include <string>

#include "worker/cli/options.h"
#include "worker/comm/status.h"
#include "worker/engine/group.h"
#include "worker/launch/launcher.h"

namespace pm::cli {

/// How this process takes part. The launcher gives its children --segment, --rank and --plan beside its own arguments.
struct ProcessOptions {
  std::string segment;               ///< empty: this process becomes the launcher
  int rank = 0;
  std::string plan;                  ///< the user's plan file
  std::string group_plan;            ///< the launcher's, which all ranks of the group share
  int hang_timeout_seconds = 60;
  launch::Nodes nodes;               ///< that share the ranks of the plan
  /// Where this process is, as one of `size` ranks.
  comm::Place place(int size) const;
  const std::string& plan_file() const { return group_plan.empty() ? plan : group_plan; }
  bool is_rank() const { return !segment.empty(); }
  void add_to(CLI::App& verb);
};

/// What the launcher process needs beside the ranks.
struct LauncherOptions {
  int drain_seconds = 60;
  std::function<void(comm::StatusBoard&)> start_ops, stop_ops;
};

/// Starts one child per rank that the plan has on this node and returns the group's exit code.
int launch_ranks(const Program&, const ProcessOptions&, const Setup&, LauncherOptions);
/// The life of one rank: loads; rank 0 then runs `leader`, the others follow it. Errors go to the status board; returns the exit code.
int run_rank(const ProcessOptions&, const engine::GroupModel&, const std::function<int(engine::Group&)>& leader);

}  // namespace pm::cli
