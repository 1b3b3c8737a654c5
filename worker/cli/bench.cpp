// The verb bench: what loading costs, measured on this machine.
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "worker/base/error.h"
#include "worker/cli/options.h"
#include "worker/models/model.h"

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

/// Seconds that reading `bytes` bytes of the checkpoint's tensors takes, in blocks as the loader's, into one buffer.
double read_plainly(const checkpoint::Checkpoint& checkpoint, const policy::Model& model, int64_t bytes) {
  std::vector<std::byte> block(int64_t{8} << 20);
  const auto start = Clock::now();
  for (const policy::Param* param : model.params()) {
    for (int64_t at = 0; bytes > 0 && at < param->tensor->bytes; at += static_cast<int64_t>(block.size())) {
      const int64_t size = std::min({static_cast<int64_t>(block.size()), param->tensor->bytes - at, bytes});
      const checkpoint::Strip strip{at, 1, size, size};
      checkpoint.read(*param->tensor, {&strip, 1}, {block.data(), static_cast<size_t>(size)});
      bytes -= size;
    }
  }
  return since(start);
}

struct LoadOptions : ModelOptions {
  int rank = 0;
  bool dry_run = false;
};

/// Loads one rank's share as `serve` would, alone, and compares what it holds with its plan and its peak with what it holds.
int load(const LoadOptions& options) {
  const auto checkpoint = checkpoint::Checkpoint::open(options.model);
  const policy::Model model = policy::resolve(checkpoint, options.policy);
  if (options.rank >= options.ranks) throw Error(ErrorKind::Usage, "Usage", "--rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) + " ranks; they count from 0");
  const DType precision = options.precision.empty() ? model.facts.dtype : *dtype_of(options.precision);
  const Cuts cuts = deal(model.facts, options.ranks, precision);
  nlohmann::json row{{"architecture", model.architecture}, {"ranks", options.ranks}, {"rank", options.rank}, {"precision", name_of(precision)},
                     {"planned", cuts.weight_bytes(model.facts, options.rank)}, {"whole", deal(model.facts, 1, precision).weight_bytes(model.facts, 0)}};
  if (options.dry_run) {
    std::cout << row.dump() << "\n";
    return 0;
  }
  const int64_t before = status_bytes("VmRSS");
  const auto start = Clock::now();
  layers::Loader loader(checkpoint, cuts, options.rank, precision);
  const models::Model share(model, loader);
  const double seconds = since(start);
  const int64_t peak = status_bytes("VmHWM") - before;
  row.update({{"weights", loader.resident_bytes()}, {"peak", peak}, {"read", loader.read_bytes()}, {"seconds", seconds},
              {"plain_read_seconds", read_plainly(checkpoint, model, loader.read_bytes())}});
  std::cout << row.dump() << "\n";
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("bench", "Measures this program on this machine");
  verb->require_subcommand(1);
  auto* one = verb->add_subcommand("load", "Loads one rank's share: bytes held and planned, peak, seconds beside a plain read of as many bytes (JSON)");
  auto options = std::make_shared<LoadOptions>();
  options->add_to(*one);
  one->add_option("--rank", options->rank, "Which rank's share")->check(CLI::NonNegativeNumber);
  one->add_flag("--dry-run", options->dry_run, "Only what the plan says");
  one->callback([options, &program] { program.code = load(*options); });
}

}  // namespace pm::cli
