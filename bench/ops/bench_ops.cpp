// SPDX-License-Identifier: Apache-2.0
// Checks and times every operation of worker/ops on every device of this machine: the CPU, and GPUs in a program built
// with the preset cuda. Each result is compared with one in fp64. `bench_ops --help` lists the options.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/ops/case.h"
#include "bench/ops/dispatched.h"
#include "bench/ops/measure.h"
#include "bench/ops/report.h"
#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::bench {
namespace {

struct Options {
  std::vector<std::string> operations, devices;  ///< empty: all
  bool list = false, check_only = false, json = false;
  int threads = 0, rounds = 5;
};

/// A device with its own kernels, or with the ATen defaults.
struct Target {
  std::string name;
  at::Device device;
  bool is_aten;
};

std::vector<Target> present_targets() {
  std::vector<at::Device> devices{at::kCPU};
  if (c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
    const int count = c10::impl::getDeviceGuardImpl(at::kCUDA)->deviceCount();
    for (int i = 0; i < count; ++i) devices.emplace_back(at::kCUDA, static_cast<c10::DeviceIndex>(i));
  }
  std::vector<Target> targets;
  for (const at::Device& device : devices) {
    targets.push_back({device.str(), device, false});
    targets.push_back({device.str() + "-aten", device, true});
  }
  return targets;
}

bool is_selected(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

/// Throws CLI::ValidationError if a name is not among those that exist.
void require_known(const std::string& option, const std::vector<std::string>& names,
                   const std::vector<std::string>& known) {
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end())
      throw CLI::ValidationError(option, name + " is none of " + CLI::detail::join(known, ", "));
  }
}

/// Checks and times one case on the selected targets, all of one device.
std::vector<Result> run_case(const Operation& operation, const Case& one, const std::vector<Target>& targets,
                             const Options& options) {
  at::manual_seed(1);
  const Problem problem = one.make();
  const at::Device device = targets.front().device;
  const c10::DeviceGuard guard(device);
  const Dispatched own(device.type());
  const ops::Backend aten;
  const Run run = problem.on(device);
  std::vector<Result> results;
  std::optional<Outputs> expected;
  for (const Target& target : targets) {
    Result result{.operation = operation.name,
                  .name = one.name,
                  .device = target.name,
                  .tolerance = device.is_cpu() ? one.tolerance : one.device_tolerance.value_or(one.tolerance),
                  .bytes = one.bytes,
                  .flops = one.flops};
    try {
      const Outputs outputs = run(target.is_aten ? aten : own, {.keep_inputs = true});
      if (!outputs.empty()) {
        if (!expected) expected = problem.expected();
        result.error = largest_error(outputs, *expected);
        result.verdict = *result.error <= result.tolerance ? Verdict::Ok : Verdict::Failed;
      }
    } catch (const std::exception& error) {
      result.verdict = Verdict::Failed;
      result.message = error.what();
    }
    results.push_back(std::move(result));
  }
  expected.reset();
  const bool runs = std::ranges::all_of(results, [](const Result& r) { return r.error.has_value(); });
  if (options.check_only || !runs) return results;
  const ops::Backend* both[] = {&own, &aten};
  const std::vector<double> seconds = fastest_calls(run, both, device, options.rounds);
  for (size_t i = 0; i < targets.size(); ++i) {
    results[i].seconds = seconds[targets[i].is_aten ? 1 : 0];
    results[i].aten_seconds = seconds[1];
  }
  return results;
}

void print_list(const std::vector<Target>& targets) {
  for (const Operation& operation : operations)
    std::printf("%-20s %3zu cases\n", operation.name, operation.cases().size());
  std::printf("devices:");
  for (const Target& target : targets) std::printf(" %s", target.name.c_str());
  std::printf("\n");
}

/// Returns the exit status: 0 if every check passed.
int run_all(const std::vector<Target>& present, const Options& options) {
  std::vector<std::vector<Target>> devices;  // the selected targets of each device
  for (const Target& target : present) {
    if (!is_selected(options.devices, target.name)) continue;
    if (devices.empty() || devices.back().front().device != target.device) devices.emplace_back();
    devices.back().push_back(target);
  }
  int64_t checks = 0, failed = 0, left_out = 0;
  nlohmann::json results = nlohmann::json::array();
  if (!options.json) print_heading();
  for (const Operation& operation : operations) {
    if (!is_selected(options.operations, operation.name)) continue;
    for (Case& one : operation.cases()) {
      const Case taken = std::exchange(one, {});  // its inputs are released before those of the next case are made
      if (options.check_only && taken.is_large) {
        ++left_out;
        continue;
      }
      for (const std::vector<Target>& targets : devices) {
        for (const Result& result : run_case(operation, taken, targets, options)) {
          checks += result.verdict != Verdict::Unsupported;
          failed += result.verdict == Verdict::Failed;
          if (options.json)
            results.push_back(to_json(result));
          else
            print(result);
        }
      }
    }
  }
  if (options.json) {
    std::printf(
        "%s\n",
        nlohmann::json{{"cpu_kernels", ops::kernels().name}, {"threads", at::get_num_threads()}, {"results", results}}
            .dump(1)
            .c_str());
  } else {
    std::printf("%ld checks, %ld failed; %d threads, CPU kernels for %s\n", static_cast<long>(checks),
                static_cast<long>(failed), at::get_num_threads(), ops::kernels().name);
    if (left_out > 0)
      std::printf("%ld cases of the size of a 7-8B model run without --check-only\n", static_cast<long>(left_out));
  }
  return failed == 0 ? 0 : 1;
}

int run_program(int argc, char** argv) {
  Options options;
  CLI::App app("Checks and times every operation of worker/ops on every device");
  app.add_option("--op", options.operations, "operations; default: all");
  app.add_option("--device", options.devices, "devices as --list prints them; NAME-aten: by ATen alone; default: all");
  app.add_flag("--list", options.list, "print operations and devices");
  app.add_flag("--check-only", options.check_only, "do not time, and leave out the largest cases");
  app.add_flag("--json", options.json, "print JSON instead of a table");
  app.add_option("--threads", options.threads, "threads of the CPU; default: ATen's")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "rounds of which the fastest counts")->check(CLI::PositiveNumber);
  const std::vector<Target> targets = present_targets();
  std::vector<std::string> names, devices;
  for (const Operation& operation : operations) names.emplace_back(operation.name);
  for (const Target& target : targets) devices.push_back(target.name);
  try {
    app.parse(argc, argv);
    require_known("--op", options.operations, names);
    require_known("--device", options.devices, devices);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (options.threads > 0) at::set_num_threads(options.threads);
  if (options.list) {
    print_list(targets);
    return 0;
  }
  return run_all(targets, options);
}

}  // namespace
}  // namespace pm::bench

int main(int argc, char** argv) { return pm::bench::run_program(argc, argv); }
