// What the verbs share: the model, how it is cut, and the plan that follows. Verbs are declared with CLI11, so that each has --help.
#pragma once
#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "planner/plan.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/group.h"
#include "worker/policy/model.h"

namespace pm::cli {

/// --model --ranks --device --strategy --sizes --offload-to --objective --micro-batches --precision --policy: the same for every verb that runs the model.
struct ModelOptions {
  std::string model;
  std::string policy;
  int ranks = 1;
  std::string device = "cpu";
  std::string strategy, sizes, precision, objective, offload_to;
  int micro_batches = 0;           ///< 0: planned
  bool no_graphs = false;
  int64_t max_sequence_length = 0, max_concurrency = 64;
  std::string device_memory;       ///< empty: what the devices have free; of the processor this host's memory, shared by the ranks
  void add_to(CLI::App& verb);
};

/// A checkpoint with its policy resolved and a plan made or read.
struct Setup {
  at::DeviceType device = at::kCPU;
  checkpoint::Checkpoint checkpoint;
  policy::Model model;
  Plan plan;
  bool graphs = true;
  engine::GroupModel group(int64_t kv_blocks) const { return {.checkpoint = &checkpoint, .model = &model, .plan = &plan, .kv_blocks = kv_blocks, .device = device, .graphs = graphs}; }
};

/// Opens, resolves and plans. `plan_file`: a plan made before (by the controller) is obeyed, not made again.
/// Throws Error{Usage, Model, DoesNotFit}.
Setup prepare(const ModelOptions&, const std::string& plan_file = {});
Hardware hardware_of(const ModelOptions&);
Wishes wishes_of(const ModelOptions&);

/// "80Gi", "512M", "123" -> bytes. Throws Error{Usage}.
int64_t bytes_of(const std::string& quantity);

/// The program's arguments, which ranks as processes are started with again, and its exit code.
struct Program { int argc; char** argv; int code = 0; };
// Each verb declares itself.
void add_inspect(CLI::App&, Program&);
void add_plan(CLI::App&, Program&);
void add_families(CLI::App&, Program&);
void add_generate(CLI::App&, Program&);
void add_forward(CLI::App&, Program&);
void add_bench(CLI::App&, Program&);
void add_serve(CLI::App&, Program&);

}  // namespace pm::cli
