// The verb bench: what loading costs, measured on this machine.
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/options.h"
#include "worker/engine/device.h"
#include "worker/models/model.h"
#include "worker/ops/device_memory.h"

namespace pm::cli {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A line of /proc/self/status in bytes: VmRSS, VmHWM.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

struct LoadOptions : ModelOptions {
  int rank = 0;
  bool dry_run = false;
};

/// Loads one rank's share as `serve` would, alone, and compares what it holds with its plan and its peak with what it holds: of the process, or of the device's allocator.
int load(const LoadOptions& options) {
  const auto checkpoint = checkpoint::Checkpoint::open(options.model);
  const policy::Model model = policy::resolve(checkpoint, options.policy);
  if (options.rank >= options.ranks) throw Error(ErrorKind::Usage, "Usage", "--rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) + " ranks; they count from 0");
  const DType precision = options.precision.empty() ? model.facts.dtype : *dtype_of(options.precision);
  const Cuts cuts = deal(model.facts, options.ranks, precision);
  const int64_t whole = deal(model.facts, 1, precision).weight_bytes(model.facts, 0);
  const auto planned = [&](int rank) {
    return nlohmann::json{{"architecture", model.architecture}, {"ranks", options.ranks}, {"rank", rank}, {"precision", name_of(precision)},
                          {"planned", cuts.weight_bytes(model.facts, rank)}, {"whole", whole}};
  };
  if (options.dry_run) {
    for (int rank = 0; rank < options.ranks; ++rank) std::cout << planned(rank).dump() << "\n";
    return 0;
  }
  const at::DeviceType type = engine::device_type(options.device);
  const at::Device device = engine::device_of(type, 0);
  const auto on_device = [&] { return device.is_cpu() ? ops::DeviceMemory{} : ops::device_memory(device); };
  const int64_t before = on_device().allocated, resident = status_bytes("VmRSS");
  const auto start = Clock::now();
  layers::Loader loader(checkpoint, cuts, options.rank, precision, {}, device);
  Layers layers;
  for (const StackFacts& stack : model.facts.stacks) layers.push_back({stack.name, {0, stack.layers}});
  const models::Model share(model, layers, loader);
  const ops::DeviceMemory most = on_device();
  loader.loaded();
  const double seconds = since(start);
  const ops::DeviceMemory held = on_device();
  nlohmann::json row = planned(options.rank);
  row.update({{"weights", loader.resident_bytes()}, {"read", loader.read_bytes()}, {"seconds", seconds}});
  if (device.is_cpu()) row["peak"] = status_bytes("VmHWM") - resident;
  else row.update({{"device", device.str()}, {"peak", std::max(most.peak_allocated, held.peak_allocated) - before}, {"peakReserved", most.peak_reserved}, {"reserved", held.reserved},
                   {"hostPeak", status_bytes("VmHWM") - resident}});
  std::cout << row.dump() << "\n";
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("bench", "Measures this program on this machine");
  verb->require_subcommand(1);
  auto* one = verb->add_subcommand("load", "Loads one rank's share: bytes held and planned, peak, seconds (JSON)");
  auto options = std::make_shared<LoadOptions>();
  options->add_to(*one);
  one->add_option("--rank", options->rank, "Which rank's share")->check(CLI::NonNegativeNumber);
  one->add_flag("--dry-run", options->dry_run, "Only what the plan says, a line per rank");
  one->callback([options, &program] { program.code = load(*options); });
}

}  // namespace pm::cli
