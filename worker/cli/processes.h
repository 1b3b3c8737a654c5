// Runs a verb on ranks that are processes: the first call of the program becomes the launcher, which starts it again once per rank.
#pragma once
#include <functional>
#include <string>

#include "worker/cli/options.h"
#include "worker/engine/group.h"
#include "worker/launch/launcher.h"

namespace pm::cli {

/// How this process takes part; the launcher passes it to its children by --segment, --rank and --group-size.
struct ProcessOptions {
  std::string segment;               ///< empty: this process is the launcher
  int rank = -1;
  int hang_timeout_seconds = 60;
  void add_to(CLI::App& verb);       ///< hidden flags
};

/// Launcher: starts `ranks` children with this program's own arguments and returns the group's exit code.
/// Rank 0: loads, runs `leader`. Other ranks: load and follow. A rank's error is put on the status board before the process ends.
/// `launcher_options` lets the caller add ops hooks, drain time and termination message.
int run_processes(int argc, const char* const* argv, const ProcessOptions&, const Setup&, int64_t kv_blocks, launch::Options launcher_options,
                  const std::function<int(engine::Group&)>& leader);

}  // namespace pm::cli
