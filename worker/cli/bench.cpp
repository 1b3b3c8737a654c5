// SPDX-License-Identifier: Apache-2.0
// The subcommand bench: it measures the time and memory of loading a model on this machine.
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/cli/options.h"
#include "worker/engine/ranks/device.h"
#include "worker/models/model.h"
#include "worker/ops/device_memory.h"
#include "worker/policy/resolve.h"

namespace pm::cli {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Returns a field of /proc/self/status, such as VmRSS or VmHWM, in bytes.
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

/// Loads one rank's shard as `serve` does and prints its planned and resident bytes and the peak memory, of the process
/// or of the device's allocator.
int load(const LoadOptions& options) {
  const auto checkpoint = checkpoint::Checkpoint::open(options.model);
  const policy::Model model = policy::resolve(checkpoint, options.policy);
  if (options.rank >= options.ranks)
    throw Error(Reason::Usage, "--rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) +
                                   " ranks; ranks count from 0");
  const DType precision = options.precision.empty() ? model.metadata.dtype : *precision_of(options.precision);
  const Partition partition = make_partition(model.metadata, options.ranks, precision);
  const int64_t whole = make_partition(model.metadata, 1, precision).weight_bytes(model.metadata, 0);
  const auto planned = [&](int rank) {
    return nlohmann::json{{"architecture", model.architecture},
                          {"ranks", options.ranks},
                          {"rank", rank},
                          {"precision", name_of(precision)},
                          {"planned", partition.weight_bytes(model.metadata, rank)},
                          {"whole", whole}};
  };
  if (options.dry_run) {
    for (int rank = 0; rank < options.ranks; ++rank) std::cout << planned(rank).dump() << "\n";
    return 0;
  }
  const at::DeviceType type = engine::device_type(options.device);
  const at::Device device = engine::rank_device(type, 0);
  const auto on_device = [&] { return device.is_cpu() ? ops::DeviceMemory{} : ops::device_memory(device); };
  const int64_t before = on_device().allocated, resident = status_bytes("VmRSS");
  const auto start = Clock::now();
  layers::Loader loader(checkpoint, partition, options.rank, precision, {}, device);
  Layers layers;
  for (const StackMetadata& stack : model.metadata.stacks) layers.push_back({stack.name, {0, stack.layers}});
  const models::Model share(model, layers, loader);
  const ops::DeviceMemory most = on_device();
  loader.loaded();
  const double seconds = since(start);
  const ops::DeviceMemory held = on_device();
  nlohmann::json row = planned(options.rank);
  row.update({{"weights", loader.resident_bytes()}, {"read", loader.read_bytes()}, {"seconds", seconds}});
  if (device.is_cpu())
    row["peak"] = status_bytes("VmHWM") - resident;
  else
    row.update({{"device", device.str()},
                {"peak", std::max(most.peak_allocated, held.peak_allocated) - before},
                {"peakReserved", most.peak_reserved},
                {"reserved", held.reserved},
                {"hostPeak", status_bytes("VmHWM") - resident}});
  std::cout << row.dump() << "\n";
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Program& program) {
  auto* subcommand = app.add_subcommand("bench", "Measures this program on this machine");
  subcommand->require_subcommand(1);
  auto* one = subcommand->add_subcommand(
      "load", "Loads one rank's shard and prints its resident and planned bytes, peak and seconds (JSON)");
  auto options = std::make_shared<LoadOptions>();
  options->add_to(*one);
  one->add_option("--rank", options->rank, "Rank whose shard is loaded")->check(CLI::NonNegativeNumber);
  one->add_flag("--dry-run", options->dry_run, "Print the planned bytes of every rank and load nothing");
  one->callback([options, &program] { program.code = load(*options); });
}

}  // namespace pm::cli
