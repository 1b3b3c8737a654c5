// See processes.h.
#include "worker/cli/processes.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/comm/communicator.h"
#include "worker/engine/device.h"
#include "worker/base/log.h"

namespace pm::cli {

namespace {

/// The plan of this run as a file that every rank reads: ranks must not plan again, free memory changes from one second to the next.
class PlanFile {
 public:
  PlanFile(const std::string& segment, const Plan& plan) : path("/dev/shm/" + segment + ".plan.json") {
    if (!(std::ofstream(path) << to_json(plan).dump())) throw Error(ErrorKind::Usage, "PlanUnwritable", "cannot write " + path);
  }
  ~PlanFile() { std::filesystem::remove(path); }
  const std::string path;
};

/// Processes do not share a device: NCCL refuses to join two ranks on one, and each would count with all of its memory.
void require_devices(at::DeviceType type, int ranks) {
  if (type == at::kCPU) return;
  const int there = c10::impl::getDeviceGuardImpl(type)->deviceCount();
  if (ranks <= there) return;
  throw Error(ErrorKind::Usage, "InsufficientDevices", std::to_string(ranks) + " ranks as processes need a device each, and this host shows " + std::to_string(there) + ": take --ranks " + std::to_string(there) +
                                                       ", or give this process more devices; generate and forward let ranks share a device as threads");
}

}  // namespace

void ProcessOptions::add_to(CLI::App& verb) {
  verb.add_option("--plan", plan, "Obey this plan (JSON, as `plan --json` prints it) instead of making one");
  verb.add_option("--hang-timeout", hang_timeout_seconds, "Seconds without a step, while requests are open, until the group is ended")->check(CLI::PositiveNumber);
  verb.add_option("--segment", segment)->group("");   // hidden: set by the launcher
  verb.add_option("--rank", rank)->group("");
  verb.add_option("--group-plan", group_plan)->group("");
}

comm::Place ProcessOptions::place(int size) const {
  const launch::Dealt here = launch::deal(size, nodes.count, nodes.here);
  return {.segment = segment, .rank = rank, .size = size, .first = here.first, .count = here.count, .incarnation = nodes.incarnation, .deadline = std::chrono::seconds(hang_timeout_seconds)};
}

int launch_ranks(const Program& program, const ProcessOptions& process, const Setup& setup, LauncherOptions options) {
  require_devices(setup.device, launch::deal(static_cast<int>(setup.plan.ranks.size()), process.nodes.count, process.nodes.here).count);
  launch::Options launcher;
  launcher.ranks = static_cast<int>(setup.plan.ranks.size());
  launcher.nodes = process.nodes;
  launcher.segment = launch::segment_name(process.nodes.incarnation);
  launcher.hang_timeout = std::chrono::seconds(process.hang_timeout_seconds);
  launcher.drain = std::chrono::seconds(options.drain_seconds);
  launcher.start_ops = std::move(options.start_ops);
  launcher.stop_ops = std::move(options.stop_ops);
  const PlanFile plan(launcher.segment, setup.plan);
  launcher.arguments = [&](int rank) {
    std::vector<std::string> arguments(program.argv, program.argv + program.argc);
    for (const std::string& more : {std::string("--segment"), launcher.segment, std::string("--rank"), std::to_string(rank), std::string("--group-plan"), plan.path}) {
      arguments.push_back(more);
    }
    return arguments;
  };
  return launch::run(launcher);
}

int run_rank(const ProcessOptions& process, const engine::GroupModel& model, const std::function<int(engine::Group&)>& leader) {
  const auto size = static_cast<int>(model.plan->ranks.size());
  comm::Place place = process.place(size);
  place.device = engine::device_of(model.device, place.rank - place.first);
  const auto board = comm::StatusBoard::open(process.segment, size);
  const comm::Heartbeat heartbeat(board, process.rank);
  const auto fail = [&](const std::string& reason, const std::string& message, int code) {
    LOG(ERROR) << "rank " << process.rank << ": " << reason << ": " << message;
    board->fail(process.rank, reason, message, code);
    comm::abort_segment(process.segment, message);
    return code;
  };
  try {
    if (process.rank == 0) return leader(*engine::process_group(model, place));
    engine::follow(model, place);
    return 0;
  } catch (const Error& error) {
    return fail(error.reason, error.what(), exit_code(error.kind));
  } catch (const std::exception& error) {
    return fail("InternalError", error.what(), 1);
  }
}

}  // namespace pm::cli
