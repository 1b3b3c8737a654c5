// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/processes.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "contract/worker_arguments.h"
#include "worker/base/error.h"
#include "worker/comm/communicator.h"
#include "worker/engine/ranks/device.h"

#include "base/log.h"

namespace pm::cli {

namespace {

/// A temporary file with the plan, which every rank reads. Ranks must not plan again, because free memory changes
/// meanwhile and their plans would differ.
class PlanFile {
 public:
  PlanFile(const std::string& segment, const Plan& plan) : path("/dev/shm/" + segment + ".plan.json") {
    if (!(std::ofstream(path) << to_json(plan).dump())) throw Error(Reason::PlanUnwritable, "cannot write " + path);
  }
  ~PlanFile() { std::filesystem::remove(path); }
  const std::string path;
};

/// Requires a device for each rank. Processes cannot share one: NCCL does not allow two ranks on a device, and each
/// process would plan with all of its memory.
void require_devices(at::DeviceType type, int ranks) {
  if (type == at::kCPU) return;
  const int there = c10::impl::getDeviceGuardImpl(type)->deviceCount();
  if (ranks <= there) return;
  throw Error(Reason::InsufficientDevices,
              std::to_string(ranks) + " ranks as processes need one device each, and this host has " +
                  std::to_string(there) + ": use --ranks " + std::to_string(there) +
                  ", or make more devices visible; in generate and forward, ranks as threads can share a device");
}

}  // namespace

void ProcessOptions::add_to(CLI::App& subcommand) {
  subcommand.add_option(flag::plan.name, plan, "Use this plan (JSON, as `plan --json` prints it) instead of planning");
  subcommand
      .add_option(flag::hang_timeout.name, hang_timeout_seconds,
                  "Seconds without an engine step, while requests are open, after which the replica is terminated")
      ->check(CLI::PositiveNumber);
  subcommand.add_option("--segment", segment)->group("");  // hidden: set by the launcher
  subcommand.add_option("--rank", rank)->group("");
  subcommand.add_option("--group-plan", group_plan)->group("");
}

comm::RankPlacement ProcessOptions::placement(int size) const {
  const launch::Slice here = launch::partition(size, nodes.count, nodes.index);
  return {.segment = segment,
          .rank = rank,
          .size = size,
          .first = here.first,
          .count = here.count,
          .replica_generation = nodes.replica_generation,
          .deadline = std::chrono::seconds(hang_timeout_seconds)};
}

int launch_ranks(const Program& program, const ProcessOptions& process, const Setup& setup, LauncherOptions options) {
  require_devices(
      setup.device,
      launch::partition(static_cast<int>(setup.plan.ranks.size()), process.nodes.count, process.nodes.index).count);
  launch::Options launcher;
  launcher.ranks = static_cast<int>(setup.plan.ranks.size());
  launcher.nodes = process.nodes;
  launcher.segment = launch::segment_name(process.nodes.replica_generation);
  launcher.hang_timeout = std::chrono::seconds(process.hang_timeout_seconds);
  launcher.drain = std::chrono::seconds(options.drain_seconds);
  launcher.start_admin_server = std::move(options.start_admin_server);
  launcher.stop_admin_server = std::move(options.stop_admin_server);
  const PlanFile plan(launcher.segment, setup.plan);
  launcher.arguments = [&](int rank) {
    std::vector<std::string> arguments(program.argv, program.argv + program.argc);
    for (const std::string& more : {std::string("--segment"), launcher.segment, std::string("--rank"),
                                    std::to_string(rank), std::string("--group-plan"), plan.path}) {
      arguments.push_back(more);
    }
    return arguments;
  };
  return launch::run(launcher);
}

int run_rank(const ProcessOptions& process, const engine::RankGroupConfig& model,
             const std::function<int(engine::RankGroup&)>& leader) {
  const auto size = static_cast<int>(model.plan->ranks.size());
  comm::RankPlacement placement = process.placement(size);
  placement.device = engine::rank_device(model.device, placement.rank - placement.first);
  const auto status_table = comm::StatusTable::open(process.segment, size);
  const comm::Heartbeat heartbeat(status_table, process.rank);
  const auto fail = [&](Reason reason, const std::string& message) {
    const int code = exit_code(info_of(reason).kind);
    LOG(ERROR) << "rank " << process.rank << ": " << reason << ": " << message;
    status_table->fail(process.rank, reason, message, code);
    comm::abort_segment(process.segment, message);
    return code;
  };
  try {
    if (process.rank == 0) return leader(*engine::process_rank_group(model, placement));
    engine::follow(model, placement);
    return 0;
  } catch (const Error& error) {
    return fail(error.reason, error.what());
  } catch (const std::exception& error) {
    return fail(Reason::InternalError, error.what());
  }
}

}  // namespace pm::cli
