// See options.h.
#include "worker/cli/options.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

#include "planner/strategy_names.h"
#include "worker/base/error.h"
#include "worker/engine/device.h"
#include "worker/hub/address.h"

namespace pm::cli {

namespace {

/// Names that mean something elsewhere are told the strategy that serves the same wish.
CLI::Validator strategy_name() {
  return {[](const std::string& name) { return strategy_of(name) ? std::string() : advice_on(name); }, "Tensor|Pipeline|Data|Sharded|Offload", "strategy"};
}

}  // namespace

void ModelOptions::add_to(CLI::App& verb) {
  verb.add_option("--model", model, "Folder of a Hugging Face checkpoint (config.json, *.safetensors or pytorch_model*.bin, tokenizer files)")->required();
  verb.add_option("--policy", policy, "A policy file of your own instead of the built-in one");
  verb.add_option("--ranks", ranks, "Devices to cut the model over")->check(CLI::Range(1, 1024));
  verb.add_option("--device", device, "What a rank runs on: cpu; cuda in a worker that was built with it");
  verb.add_option("--strategy", strategy, "How to cut; absent: planned")->check(strategy_name());
  verb.add_option("--sizes", sizes, "Sizes of the axes, e.g. tensor=2,pipeline=2,data=1; what is left out is planned");
  verb.add_option("--offload-to", offload_to, "Where strategy Offload keeps the weights; absent: File, the checkpoint's own files")->check(CLI::IsMember({"File", "HostMemory"}));
  verb.add_option("--objective", objective, "What the cut is chosen for; absent: Latency")->check(CLI::IsMember({"Latency", "Throughput", "Memory"}));
  verb.add_option("--micro-batches", micro_batches, "Pieces of a pass that the stages of a pipeline work on at once; absent: planned")->check(CLI::Range(1, 1024));
  verb.add_option("--precision", precision, "F32, F16, BF16, or I8 for matrices in int8; absent: the checkpoint's")->check(CLI::IsMember({"F32", "F16", "BF16", "I8"}));
  verb.add_flag("--no-graphs", no_graphs, "queue the kernels of every decoding step anew; on CUDA they are recorded once for each size of batch and sent in one go");
  verb.add_option("--max-sequence-length", max_sequence_length, "Longest prompt and answer together; absent: the model's, at most 8192");
  verb.add_option("--max-concurrency", max_concurrency, "Most sequences at once")->check(CLI::Range(1, 65536));
  verb.add_option("--device-memory", device_memory, "Memory that a rank may have of its device, e.g. 80Gi; absent: what is free of it (of --device cpu this host's, shared by the ranks)");
}

int64_t bytes_of(const std::string& quantity) {
  size_t used = 0;
  double number = 0;
  try {
    number = std::stod(quantity, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  static const std::map<std::string, double> units{{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
                                                   {"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0}};
  const auto unit = units.find(quantity.substr(used));
  if (used == 0 || number < 0 || unit == units.end()) {
    throw Error(ErrorKind::Usage, "Usage", "\"" + quantity + "\" is not a quantity of bytes; write e.g. 80Gi, 512Mi or 8000000000");
  }
  return static_cast<int64_t>(number * unit->second);
}

namespace {

/// What this process may use: the smaller of the host's available memory and the cgroup's limit (v2, then v1).
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

Hardware hardware_of(const ModelOptions& options) {
  Hardware hardware;
  hardware.devices = options.ranks;
  const bool processor = options.device == "cpu", given = !options.device_memory.empty();
  if (given) {
    hardware.device_memory = bytes_of(options.device_memory);
    hardware.memory_source = "--device-memory";
  }
  if (!processor) {
    hardware.kind = DeviceKind::GPU;
    hardware.host_memory = {static_cast<double>(host_memory()), "this host's"};
    if (given) return hardware;   // nothing has to be there to plan for it
    const engine::Offer offer = engine::offer_of(engine::device_type(options.device), options.ranks);
    hardware.device_memory = offer.memory;
    hardware.memory_source = offer.source;
    hardware.product = offer.product;
  } else if (!given) {
    hardware.device_memory = host_memory() / options.ranks;
    hardware.memory_source = "this host's memory, shared by the ranks";
  }
  return hardware;
}

namespace {

/// "tensor=2,pipeline=2,data=1", each at most once.
void read_sizes(const std::string& sizes, Wishes& wishes) {
  std::istringstream list(sizes);
  for (std::string one; std::getline(list, one, ',');) {
    const size_t equals = one.find('=');
    const std::string axis = one.substr(0, equals), digits = equals == std::string::npos ? "" : one.substr(equals + 1);
    std::optional<int>* size = axis == "tensor" ? &wishes.tensor : axis == "pipeline" ? &wishes.pipeline : axis == "data" ? &wishes.data : nullptr;
    const bool number = !digits.empty() && digits.size() <= 6 && digits.find_first_not_of("0123456789") == std::string::npos;
    if (!size || !number || *size) {
      throw Error(ErrorKind::Usage, "InvalidSizes", "--sizes \"" + sizes + "\": found \"" + one + "\", expected tensor=N, pipeline=N or data=N, each once, with commas between");
    }
    *size = std::stoi(digits);
  }
}

}  // namespace

Wishes wishes_of(const ModelOptions& options) {
  Wishes wishes;
  if (!options.strategy.empty()) wishes.strategy = strategy_of(options.strategy);
  if (!options.precision.empty()) wishes.precision = dtype_of(options.precision);
  read_sizes(options.sizes, wishes);
  if (!options.objective.empty()) wishes.objective = objective_of(options.objective).value();
  if (!options.offload_to.empty()) wishes.offload_to = residency_of(options.offload_to);
  if (options.micro_batches > 0) wishes.micro_batches = options.micro_batches;
  wishes.max_sequence_length = options.max_sequence_length;
  wishes.max_concurrency = options.max_concurrency;
  return wishes;
}

namespace {

Plan read_plan(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(ErrorKind::Usage, "PlanUnreadable", "cannot read the plan file " + file);
  try {
    return plan_from_json(nlohmann::json::parse(in));
  } catch (const std::exception& error) {
    throw Error(ErrorKind::Usage, "PlanUnreadable", file + " is not a plan: " + error.what());
  }
}

Plan make_plan(const Facts& facts, const ModelOptions& options) {
  Decision decision = decide(facts, hardware_of(options), wishes_of(options));
  if (decision.plan) return *std::move(decision.plan);
  const ErrorKind kind = decision.refusal->reason == "DoesNotFit" ? ErrorKind::DoesNotFit : ErrorKind::Usage;
  throw Error(kind, decision.refusal->reason, decision.refusal->message);
}

}  // namespace

Setup prepare(const ModelOptions& options, const std::string& plan_file) {
  if (hub::names_repository(options.model)) {
    throw Error(ErrorKind::Usage, "Usage", "--model " + options.model + ": this verb runs a checkpoint on disk; `parallelmodel-worker fetch --model " + options.model +
                                               " --cache DIR` downloads it and prints its folder");
  }
  Setup setup{.device = engine::device_type(options.device), .checkpoint = checkpoint::Checkpoint::open(options.model), .model = {}, .plan = {}, .graphs = !options.no_graphs};
  setup.model = policy::resolve(setup.checkpoint, options.policy);
  setup.plan = plan_file.empty() ? make_plan(setup.model.facts, options) : read_plan(plan_file);
  return setup;
}

}  // namespace pm::cli
