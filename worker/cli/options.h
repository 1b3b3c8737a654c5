// SPDX-License-Identifier: Apache-2.0
// The options that subcommands share: the model, its parallelism and the plan made from them. CLI11 parses them and
// writes --help.
#pragma once
#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "planner/plan.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/cli/draft_model_files.h"
#include "worker/cli/speculation.h"
#include "worker/engine/ranks/rank_group.h"
#include "worker/policy/spec/model.h"

namespace pm::cli {

/// The options that every subcommand which runs a model has: --model, --ranks, --device, --strategy, --sizes,
/// --offload-to, --objective, --micro-batches, --precision, --policy and the limits of the plan.
struct ModelOptions {
  std::string model;
  std::string policy;
  int ranks = 1;
  std::string device = "cpu";
  std::string strategy, sizes, precision, kv_precision, objective, offload_to;
  int micro_batches = 0;  ///< 0: the planner chooses
  bool no_graphs = false;
  int64_t max_sequence_length = 0, max_concurrency = 64;
  /// Adapters: folders, "" for none; what memory is kept for where that is more than these need (0: it is not); and
  /// whether adapters of any modules may be loaded later.
  std::vector<std::string> adapters;
  int64_t max_adapters = 0, max_adapter_rank = 0;
  bool adapts_any_module = false;
  DrafterOptions drafter;
  std::string device_memory;  ///< empty: the free memory of the devices, or an equal share of the host's memory on CPU
  void add_to(CLI::App& subcommand);
};

/// An opened checkpoint with its resolved policy and its plan.
struct Setup {
  at::DeviceType device = at::kCPU;
  checkpoint::Checkpoint checkpoint;
  policy::Model model;
  Plan plan;
  bool graphs = true;
  layers::AdapterCapacity adapters = {};
  std::shared_ptr<const DraftModelFiles> drafter =
      {};  ///< what is loaded beside the model and drafts; nullptr: nothing
  engine::RankGroupConfig group(int64_t kv_blocks) const {
    return {.checkpoint = &checkpoint,
            .model = &model,
            .plan = &plan,
            .kv_blocks = kv_blocks,
            .device = device,
            .graphs = graphs,
            .adapters = adapters};
  }
};

/// Opens the checkpoint, resolves its policy and plans. A `plan_file`, which the controller writes, is used instead of
/// a new plan.
/// Throws Error{Usage, Model, DoesNotFit}.
Setup prepare(const ModelOptions&, const std::string& plan_file = {});
/// Returns the devices that the options describe, with their memory.
Hardware detect_hardware(const ModelOptions&);
PlanConstraints plan_constraints(const ModelOptions&);

/// Parses a Kubernetes quantity of bytes: "80Gi", "512M", "123". Throws Error{Usage}.
int64_t parse_bytes(const std::string& quantity);

/// The arguments of this process, with which the launcher starts the rank processes again, and its exit code.
struct Program {
  int argc;
  char** argv;
  int code = 0;
};
// Each function adds one subcommand to the program.
void add_inspect(CLI::App&, Program&);
void add_plan(CLI::App&, Program&);
void add_families(CLI::App&, Program&);
void add_generate(CLI::App&, Program&);
void add_forward(CLI::App&, Program&);
void add_bench(CLI::App&, Program&);
void add_convert(CLI::App&, Program&);
void add_serve(CLI::App&, Program&);

}  // namespace pm::cli
