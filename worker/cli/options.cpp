// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/options.h"

#include <unistd.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/quantity.h"
#include "contract/worker_arguments.h"
#include "planner/strategy_names.h"
#include "worker/base/error.h"
#include "worker/cli/adapter_options.h"
#include "worker/engine/ranks/device.h"
#include "worker/hub/address.h"
#include "worker/policy/resolve.h"

namespace pm::cli {

namespace {

/// Accepts a strategy's name; for the name of another system's strategy, the error names the equivalent one here.
CLI::Validator strategy_name() {
  std::string names;
  for (const Strategy strategy : strategies) names += (names.empty() ? "" : "|") + std::string(name_of(strategy));
  return {[](const std::string& name) { return strategy_of(name) ? std::string() : advice_on(name); }, names,
          "strategy"};
}

}  // namespace

void ModelOptions::add_to(CLI::App& subcommand) {
  subcommand
      .add_option(
          flag::model.name, model,
          "Folder of a Hugging Face checkpoint (config.json, *.safetensors or pytorch_model*.bin, tokenizer files), or "
          "with a model in GGUF")
      ->required();
  subcommand.add_option(flag::policy.name, policy, "Policy file (YAML) to use instead of the built-in policy");
  subcommand.add_option("--ranks", ranks, "Number of ranks (devices) to shard the model over")
      ->check(CLI::Range(1, 1024));
  subcommand.add_option(flag::device.name, device,
                        "Device type of a rank: cpu, or cuda in a worker that is built with CUDA");
  subcommand.add_option("--strategy", strategy, "Parallelism strategy (default: the planner chooses)")
      ->check(strategy_name());
  subcommand.add_option("--sizes", sizes,
                        "Parallel sizes, e.g. tensor=2,pipeline=2,data=1; the planner chooses sizes that are left out");
  subcommand
      .add_option("--offload-to", offload_to,
                  "Where the strategy Offload keeps the weights (default: File, the checkpoint's own files)")
      ->check(CLI::IsMember({"File", "HostMemory"}));
  subcommand.add_option("--objective", objective, "Objective of the planner (default: Latency)")
      ->check(CLI::IsMember({"Latency", "Throughput", "Memory"}));
  subcommand
      .add_option("--micro-batches", micro_batches,
                  "Micro-batches of a forward pass in a pipeline (default: the planner chooses)")
      ->check(CLI::Range(1, 1024));
  subcommand
      .add_option(
          "--precision", precision,
          "Data type of the weights; I8 and I4 hold matrices as integers of 8 and 4 bits, I8A8 rounds activations to 8 "
          "bits too (default: the checkpoint's)")
      ->check(CLI::IsMember({"F32", "F16", "BF16", "I8", "I4", "I8A8"}));
  subcommand
      .add_option("--kv-precision", kv_precision,
                  "Data type of the KV cache; I8 holds keys and values as integers of 8 bits, with a scale for each "
                  "token and head (default: the type in which the model computes)")
      ->check(CLI::IsMember({"I8"}));
  subcommand.add_flag(
      "--no-graphs", no_graphs,
      "Launch the kernels of every decode step one by one instead of replaying CUDA graphs, which are captured "
      "once for each batch size");
  subcommand.add_option(flag::max_sequence_length.name, max_sequence_length,
                        "Maximum tokens of prompt and answer together (default: the model's limit, at most 8192)");
  subcommand.add_option(flag::max_concurrency.name, max_concurrency, "Maximum sequences that run concurrently")
      ->check(CLI::Range(1, 65536));
  subcommand.add_option(
      "--device-memory", device_memory,
      "Device memory that a rank may use, e.g. 80Gi (default: the free memory; with --device cpu an equal share "
      "of the host's memory)");
}

int64_t parse_bytes(const std::string& quantity) {
  const std::optional<int64_t> bytes = base::parse_quantity(quantity);
  if (!bytes || *bytes < 0) {
    throw Error(Reason::Usage, "\"" + quantity + "\" is not a quantity of bytes; write e.g. 80Gi, 512Mi or 8000000000");
  }
  return *bytes;
}

namespace {

/// Returns the bytes that this process may use: the minimum of the host's available memory and the cgroup limit.
int64_t host_memory() {
  int64_t available = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::string key;
  int64_t kibibytes = 0;
  for (std::ifstream info("/proc/meminfo"); info >> key >> kibibytes; info.ignore(64, '\n')) {
    if (key == "MemAvailable:") available = kibibytes * 1024;
  }
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream(file) >> limit && limit > 0) available = std::min(available, limit);
  }
  return available;
}

}  // namespace

Hardware detect_hardware(const ModelOptions& options) {
  Hardware hardware;
  hardware.devices = options.ranks;
  const bool on_cpu = options.device == "cpu", has_memory_option = !options.device_memory.empty();
  if (has_memory_option) {
    hardware.device_memory = parse_bytes(options.device_memory);
    hardware.memory_source = "--device-memory";
  }
  if (!on_cpu) {
    hardware.kind = DeviceKind::GPU;
    hardware.host_memory = {static_cast<double>(host_memory()), "this host's"};
    if (has_memory_option) return hardware;  // planning needs no device on this host
    const engine::DeviceCapacity offer = engine::device_capacity(engine::device_type(options.device), options.ranks);
    hardware.device_memory = offer.memory;
    hardware.memory_source = offer.source;
    hardware.product = offer.product;
  } else if (!has_memory_option) {
    hardware.device_memory = host_memory() / options.ranks;
    hardware.memory_source = "this host's memory, shared by the ranks";
  }
  return hardware;
}

namespace {

/// Parses "tensor=2,pipeline=2,data=1", where each size may be named once.
void read_sizes(const std::string& sizes, PlanConstraints& constraints) {
  std::istringstream list(sizes);
  for (std::string one; std::getline(list, one, ',');) {
    const size_t equals = one.find('=');
    const std::string axis = one.substr(0, equals), digits = equals == std::string::npos ? "" : one.substr(equals + 1);
    std::optional<int>* size = axis == "tensor"     ? &constraints.tensor
                               : axis == "pipeline" ? &constraints.pipeline
                               : axis == "data"     ? &constraints.data
                                                    : nullptr;
    const bool number =
        !digits.empty() && digits.size() <= 6 && digits.find_first_not_of("0123456789") == std::string::npos;
    if (!size || !number || *size) {
      throw Error(Reason::InvalidSizes,
                  "--sizes \"" + sizes + "\": found \"" + one +
                      "\", expected a comma-separated list of tensor=N, pipeline=N or data=N, each at most once");
    }
    *size = std::stoi(digits);
  }
}

}  // namespace

PlanConstraints plan_constraints(const ModelOptions& options) {
  PlanConstraints constraints;
  if (!options.strategy.empty()) constraints.strategy = strategy_of(options.strategy);
  if (!options.precision.empty()) constraints.precision = precision_of(options.precision);
  if (!options.kv_precision.empty()) constraints.kv_precision = kv_precision_of(options.kv_precision);
  read_sizes(options.sizes, constraints);
  if (!options.objective.empty()) constraints.objective = objective_of(options.objective).value();
  if (!options.offload_to.empty()) constraints.offload_to = residency_of(options.offload_to);
  if (options.micro_batches > 0) constraints.micro_batches = options.micro_batches;
  constraints.max_sequence_length = options.max_sequence_length;
  constraints.max_concurrency = options.max_concurrency;
  return constraints;
}

namespace {

Plan read_plan(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(Reason::PlanUnreadable, "cannot read the plan file " + file);
  try {
    return plan_from_json(nlohmann::json::parse(in));
  } catch (const std::exception& error) {
    throw Error(Reason::PlanUnreadable, file + " is not a plan: " + error.what());
  }
}

Plan make_plan(const ModelMetadata& metadata, const ModelOptions& options) {
  Decision decision = decide(metadata, detect_hardware(options), plan_constraints(options));
  if (decision.plan) return *std::move(decision.plan);
  throw Error(decision.refusal->reason, decision.refusal->message);
}

}  // namespace

Setup prepare(const ModelOptions& options, const std::string& plan_file) {
  if (hub::names_repository(options.model)) {
    throw Error(Reason::Usage, "--model " + options.model +
                                   ": this subcommand runs a checkpoint on disk; `parallelmodel-worker fetch --model " +
                                   options.model + " --cache DIR` downloads it and prints its folder");
  }
  Setup setup{.device = engine::device_type(options.device),
              .checkpoint = checkpoint::Checkpoint::open(options.model),
              .model = {},
              .plan = {},
              .graphs = !options.no_graphs};
  setup.model = policy::resolve(setup.checkpoint, options.policy);
  setup.adapters = adapter_capacity(setup.model, options);
  setup.model.metadata.adapter_elements = adapter_elements(setup.model, setup.adapters);
  if (const std::string& draft_model = options.drafter.draft_model; !draft_model.empty())
    setup.drafter = open_draft_model(draft_model, setup.model, setup.checkpoint.folder());
  else if (options.drafter.is_mtp())
    setup.drafter = open_mtp_module(setup.checkpoint.folder(), options.policy, setup.model);
  if (setup.drafter) setup.model.metadata.draft = needs_of(setup.drafter->model, options.drafter.draft_model);
  setup.plan = plan_file.empty() ? make_plan(setup.model.metadata, options) : read_plan(plan_file);
  return setup;
}

}  // namespace pm::cli
