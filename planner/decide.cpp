// SPDX-License-Identifier: Apache-2.0
// Decides the plan: tries every layout of the devices and takes the best one by the objective. See plan.h and
// docs/design/planner.md.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "planner/draft_plan.h"
#include "planner/explain.h"
#include "planner/layouts.h"
#include "planner/memory.h"
#include "planner/text_format.h"

namespace pm {

using namespace text;

namespace {

constexpr int64_t longest_by_default = 8192;
constexpr int64_t length_without_positions = 2048;  ///< for families whose positions have no limit (relative biases)
constexpr int max_tried = 64;                       ///< largest number of devices in the search for the fewest that fit
constexpr int64_t least_share = 4;  ///< a layout is roomy when it holds one in so many of the requested sequences

std::string precision_list() {
  std::string list;
  for (const DType type : precisions) list += (list.empty() ? "" : ", ") + std::string(name_of(type));
  return list;
}

bool computed(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }
bool quantises(const ModelMetadata& metadata, DType precision) {
  return std::any_of(metadata.parts.begin(), metadata.parts.end(), [&](const Part& part) {
    const Quantised& q = part.quantised;
    return precision == DType::I8A8 ? q.rows > 0 || q.shared_rows > 0 : q.elements > 0;
  });
}

/// Returns the longest sequence that is served: the requested length, but at most the positions of a causal stack.
int64_t sequence_length(const ModelMetadata& metadata, int64_t wished) {
  int64_t positions = 0;
  for (const StackMetadata& stack : metadata.stacks) {
    if (stack.positions <= 0 || (metadata.task == "generate" && stack.media)) continue;
    const bool shorter = metadata.task == "generate" ? stack.positions < positions
                                                     : stack.positions > positions;  // towers have inputs of their own
    if (positions == 0 || shorter) positions = stack.positions;
  }
  if (wished > 0) return positions > 0 ? std::min(positions, wished) : wished;
  return positions > 0 ? std::min(positions, longest_by_default) : length_without_positions;
}

bool computes_in_integers(const ModelMetadata& metadata) {
  return std::any_of(metadata.stacks.begin(), metadata.stacks.end(),
                     [](const StackMetadata& stack) { return stack.integers; });
}

DType planned_precision(const ModelMetadata& metadata, const PlanConstraints& constraints) {
  const bool as_stored = computed(metadata.dtype) && !computes_in_integers(metadata);
  return constraints.precision.value_or(as_stored ? metadata.dtype : DType::F32);
}

/// Returns the most bytes that a rank keeps for adapters, whose numbers have the type of activations.
int64_t adapter_bytes(const ModelMetadata& metadata, DeviceKind kind, DType precision) {
  return metadata.adapter_elements *
         (kind == DeviceKind::CPU ? float_bytes : size_of(compute_type(metadata, precision)));
}

/// What stands on a device beside the model. A draft model is on rank 0 alone, and counts for every rank: their KV
/// blocks are the same, so that the others could make nothing of what it leaves them.
struct Companions {
  int64_t adapters = 0;  ///< most bytes of them on a rank
  std::optional<PlannedDraft> draft;

  int64_t bytes() const { return adapters + (draft ? draft->bytes : 0); }
  /// Says what they are: "1.0 GiB for adapters and 2.0 GiB for what drafts".
  std::string words() const {
    std::string out;
    if (adapters > 0) out = base::format_bytes(adapters) + " for adapters";
    if (draft) out += (out.empty() ? "" : " and ") + base::format_bytes(draft->bytes) + " for what drafts";
    return out;
  }
};

Companions companions(const ModelMetadata& metadata, DeviceKind kind, const PlanConstraints& constraints) {
  Companions out{adapter_bytes(metadata, kind, planned_precision(metadata, constraints)), {}};
  if (metadata.draft)
    out.draft = planned_draft(*metadata.draft, sequence_length(metadata, constraints.max_sequence_length),
                              constraints.max_concurrency);
  return out;
}

/// Returns the hardware with what they leave of a device's memory. Where they leave nothing it is unchanged, and the
/// plan is refused.
Hardware without(const Companions& companions, Hardware hardware) {
  if (companions.bytes() == 0 || companions.bytes() >= hardware.device_memory) return hardware;
  hardware.device_memory -= companions.bytes();
  hardware.memory_source += ", without " + companions.words();
  return hardware;
}

class Decider {
 public:
  Decider(const ModelMetadata& metadata, const Hardware& hardware, const PlanConstraints& constraints)
      : metadata_(metadata),
        companions_(companions(metadata, hardware.kind, constraints)),
        hardware_(without(companions_, with_memory(hardware))),
        constraints_(constraints) {
    demand_.kind = hardware.kind;
    demand_.precision = planned_precision(metadata, constraints);
    demand_.kv_precision = constraints.kv_precision;
    demand_.device_memory = hardware_.device_memory;
    demand_.sequence_length = sequence_length(metadata, constraints.max_sequence_length);
    demand_.concurrency = constraints.max_concurrency;
    demand_.devices_of_a_node = std::max(1, devices_of_a_node(hardware));
    demand_.micro_batches = constraints.micro_batches;
    demand_.hardware_values = hardware_values(hardware);
  }

  Decision run() {
    if (auto refusal = refuse_constraints()) return {{}, refusal};
    const bool fully_sharded = constraints_.strategy == Strategy::Sharded || constraints_.strategy == Strategy::Offload;
    if (auto refusal = fully_sharded ? refuse_fully_sharded() : std::nullopt) return {{}, refusal};
    Choices allowed = choices(hardware_, constraints_);
    if (allowed.refusal) return {{}, allowed.refusal};
    std::vector<Candidate> candidates;
    if (fully_sharded)
      try_fully_sharded(*constraints_.strategy, candidates);
    else
      for (const Sizes& sizes : allowed.sizes) candidates.push_back(attempt(sizes));
    std::optional<Choice> choice = choose(candidates, constraints_.objective);
    Explainer explainer{metadata_, hardware_, constraints_, demand_, fewest()};
    if (!choice && !allowed.fixed) {  // weights that the devices cannot hold are gathered in each forward pass
      if (explainer.fewest > 0 && explainer.fewest < hardware_.devices) explainer.usable = usable(explainer.fewest);
      for (const Strategy strategy : {Strategy::Sharded, Strategy::Offload})
        searches_index() ? candidates.push_back(moves_index(strategy)) : try_fully_sharded(strategy, candidates);
      choice = choose(candidates, constraints_.objective);
    } else if (!allowed.fixed && hardware_.devices > 1) {
      for (const Strategy strategy : {Strategy::Sharded, Strategy::Offload})
        candidates.push_back(searches_index() ? moves_index(strategy) : not_needed(strategy));
    }
    if (!choice) return {{}, explainer.does_not_fit(candidates)};
    grow_step(metadata_, demand_, *candidates[choice->index].layout);
    Plan plan = plan_of(candidates[choice->index]);
    const Reason reason = explainer.reason(candidates, *choice, allowed.fixed);
    plan.reason = name_of(reason);
    plan.message = explainer.message(candidates, *choice, reason);
    plan.rejected = alternatives(explainer, candidates, choice->index);
    return {std::move(plan), {}};
  }

 private:
  std::optional<Refusal> refuse_constraints() const {
    const std::string precision(name_of(demand_.precision));
    if (!precision_of(precision)) {
      return Refusal{
          Reason::UnsupportedPrecision, precision + " is not served by this version; " + precision_list() + " are", {}};
    }
    if (demand_.precision != DType::F32 && computes_in_integers(metadata_)) {
      return Refusal{Reason::UnsupportedPrecision,
                     precision +
                         " is not served for this model, which computes in integers of its own that F32 holds; leave "
                         "the precision out, or state F32",
                     {}};
    }
    if (is_quantized(demand_.precision) && !quantises(metadata_, demand_.precision)) {
      return Refusal{
          Reason::UnsupportedPrecision,
          precision +
              " holds matrices of layers as integers, and the metadata of this model names none; leave the precision "
              "out, or inspect the model again if an earlier version wrote the metadata",
          {}};
    }
    if (is_quantized(demand_.precision) && demand_.precision != DType::I8 && hardware_.kind == DeviceKind::GPU) {
      return Refusal{Reason::UnsupportedPrecision,
                     precision + " is served on CPUs only by this version; I8 is served on GPUs, too",
                     {}};
    }
    if (auto refusal = refuse_kv_precision()) return refusal;
    if (hardware_.device_memory <= 0) {
      const std::string product =
          hardware_.product.empty() ? "" : " (the product " + hardware_.product + " is not in the planner's table)";
      return Refusal{
          Reason::DeviceMemoryUnknown,
          "the memory of a device is not known" + product + "; state it (spec.devices.memory, --device-memory)",
          {}};
    }
    if (companions_.bytes() >= hardware_.device_memory) {
      return Refusal{Reason::DoesNotFit,
                     "a device has " + base::format_bytes(hardware_.device_memory) + ", of which up to " +
                         companions_.words() +
                         " would be kept; serve fewer adapters, adapters of a smaller rank, or a smaller draft model",
                     {}};
    }
    if (constraints_.max_sequence_length < 0 || constraints_.max_concurrency < 1) {
      return Refusal{Reason::InvalidSizes,
                     "the longest sequence is " + number(constraints_.max_sequence_length) +
                         " tokens and the concurrency " + number(constraints_.max_concurrency) +
                         "; expected positive numbers",
                     {}};
    }
    if (constraints_.micro_batches && (*constraints_.micro_batches < 1 || *constraints_.micro_batches > 1024)) {
      return Refusal{
          Reason::InvalidSizes, number(*constraints_.micro_batches) + " micro-batches; expected 1 to 1024", {}};
    }
    return {};
  }

  /// Refuses a precision of the KV cache that this model, or the device, cannot have.
  std::optional<Refusal> refuse_kv_precision() const {
    if (!constraints_.kv_precision) return {};
    const std::string name = "a KV cache in " + std::string(name_of(*constraints_.kv_precision));
    const auto refusal = [&](const std::string& why) {
      return Refusal{Reason::UnsupportedPrecision, name + " " + why, {}};
    };
    if (!kv_precision_of(name_of(*constraints_.kv_precision))) return refusal("is not served by this version; I8 is");
    const Partition whole = make_partition(metadata_, 1, demand_.precision);
    if (kv_bytes_per_token(metadata_, whole, 0, demand_.precision) == 0)
      return refusal("does not exist for this model, which caches no keys and values; leave the KV precision out");
    if (std::any_of(metadata_.stacks.begin(), metadata_.stacks.end(),
                    [](const StackMetadata& stack) { return stack.causal && stack.latent > 0; }))
      return refusal("is not served for latent attention, whose cache holds latents; leave the KV precision out");
    if (hardware_.kind == DeviceKind::GPU)
      return refusal("is served on CPUs only by this version; leave the KV precision out on GPUs");
    return {};
  }

  /// Refuses sizes and weight locations that Sharded and Offload do not support.
  std::optional<Refusal> refuse_fully_sharded() const {
    const std::string name(name_of(*constraints_.strategy)), n = number(hardware_.devices);
    if (searches_index()) return Refusal{Reason::UnsupportedStrategy, "strategy " + name + ": " + index_words, {}};
    if (constraints_.tensor.value_or(1) > 1 || constraints_.pipeline.value_or(1) > 1) {
      return Refusal{Reason::InvalidSizes,
                     "strategy " + name + " is not combined with tensor or pipeline; give data=" + n +
                         " alone, or leave the sizes out",
                     {}};
    }
    if (constraints_.data && *constraints_.data != hardware_.devices) {
      return Refusal{Reason::InvalidSizes,
                     "strategy " + name + " with data=" + number(*constraints_.data) + ", and " +
                         devices(hardware_.devices) + " are given to a group, which all take part; give data=" + n,
                     {}};
    }
    if (residency() != Residency::HostMemory) return {};
    const bool known = demand_.hardware_values.host_memory.value > 0;
    if (hardware_.kind != DeviceKind::CPU && (!known || host_holds())) return {};
    const std::string why = hardware_.kind == DeviceKind::CPU
                                ? "the memory of a rank on a CPU is the host's own, so that nothing would leave it"
                                : host_words().substr(2);
    return Refusal{Reason::UnsupportedStrategy,
                   "Offload to HostMemory: " + why +
                       ". Use File, or Tensor, Pipeline or Sharded, which keep 1/n of the model on each of n devices",
                   {}};
  }

  static constexpr const char* index_words =
      "the model searches an index of passages where it lies, and this strategy would move the index for each "
      "question; use Tensor, which keeps 1/n of it on each of n devices";

  /// Returns whether the model has an index of passages.
  bool searches_index() const {
    return std::any_of(metadata_.parts.begin(), metadata_.parts.end(),
                       [](const Part& part) { return part.axis == Axis::Passages; });
  }

  /// Returns the candidate of a fully sharded strategy for a model with an index.
  static Candidate moves_index(Strategy strategy) {
    const std::string name(name_of(strategy));
    return {.strategy = strategy,
            .name = name,
            .impossible = Rejected{name, name_of(Reason::UnsupportedStrategy), index_words, std::nullopt}};
  }

  /// Returns the location of offloaded weights.
  Residency residency() const {
    return constraints_.strategy == Strategy::Offload ? constraints_.offload_to.value_or(Residency::File)
                                                      : Residency::File;
  }

  /// Returns true when the user requested tensor parallelism, which may then span nodes.
  bool across() const { return constraints_.tensor || constraints_.strategy == Strategy::Tensor; }

  Candidate attempt(const Sizes& sizes) const {
    Candidate out{.strategy = main_axis(sizes),
                  .name = name_of(sizes),
                  .sizes = sizes,
                  .impossible = impossible(metadata_, hardware_, sizes, across())};
    if (!out.impossible) judge(out, data_parallel(metadata_, sizes, demand_));
    return out;
  }

  Candidate attempt_fully_sharded(Strategy strategy, Unit unit) const {
    const int n = std::max(1, hardware_.devices);
    FullyShardedLayout model = strategy == Strategy::Sharded ? sharded(metadata_, n, unit, demand_)
                                                             : offloaded(metadata_, n, unit, residency(), demand_);
    Candidate out{.strategy = strategy,
                  .name = std::string(name_of(strategy)) + " x " + number(n) + (unit == Unit::Tile ? " in tiles" : ""),
                  .sizes = model.layout.sizes,
                  .note = model.bound};
    if (strategy == Strategy::Offload) out.note += host_words();
    judge(out, std::move(model.layout));
    return out;
  }

  /// Tries gather buffers of one layer, and tiles of a layer where that does not fit.
  void try_fully_sharded(Strategy strategy, std::vector<Candidate>& candidates) const {
    if (strategy == Strategy::Sharded && hardware_.devices == 1 && constraints_.strategy != Strategy::Sharded) return;
    for (const Unit unit : {Unit::Layer, Unit::Tile}) {
      candidates.push_back(attempt_fully_sharded(strategy, unit));
      if (candidates.back().fits) return;
    }
  }

  /// Returns the estimates of a fully sharded strategy for information. Gathering weights in each forward pass is slow
  /// on most links and files, so the strategy is chosen only when nothing else fits.
  Candidate not_needed(Strategy strategy) const {
    Candidate out = attempt_fully_sharded(strategy, Unit::Layer);
    const Estimate& estimate = out.layout->estimate;
    std::string message = "used only on request or when nothing else fits; it would need " +
                          base::format_bytes(estimate.bytes) + " of " + base::format_bytes(hardware_.device_memory) +
                          " per device, with two buffers of " + base::format_bytes(out.layout->gathering->buffer) +
                          ", and take " + seconds(estimate.token_seconds) +
                          (metadata_.task == "generate" ? " a token" : " a pass") + ", for " + out.note;
    out.impossible = Rejected{out.name, name_of(Reason::NotNeeded), message, estimate};
    return out;
  }

  /// Returns the bytes of host memory that the weights need.
  double host_needs() const {
    return 1.1 * static_cast<double>(make_partition(metadata_, 1, demand_.precision).weight_bytes(metadata_, 0));
  }
  bool host_holds() const { return host_needs() <= demand_.hardware_values.host_memory.value; }

  /// Returns text that says whether the host's memory holds the weights, or they stay in their file.
  std::string host_words() const {
    if (demand_.hardware_values.host_memory.value <= 0) return "";
    const double needed = host_needs();
    const auto text = [](double value) { return base::format_bytes(static_cast<int64_t>(value)); };
    return host_holds() ? "; the host's " + text(demand_.hardware_values.host_memory.value) + " would hold them"
                        : "; the host's " + text(demand_.hardware_values.host_memory.value) + " are less than the " +
                              text(needed) + " they take, so that they would stay in their file";
  }

  void judge(Candidate& candidate, Layout layout) const {
    candidate.fits = layout.need() <= hardware_.device_memory;
    candidate.roomy = layout.kv_blocks == 0 || layout.concurrency * least_share >= demand_.concurrency;
    candidate.layout = std::move(layout);
  }

  /// Returns the fewest devices of this kind that hold one copy in any layout; 0 when none was found.
  int fewest() const {
    const int64_t weights = make_partition(metadata_, 1, demand_.precision).weight_bytes(metadata_, 0);
    for (int n = 1; n <= max_tried; ++n) {
      if (weights / n > hardware_.device_memory) continue;
      for (int tensor = n; tensor >= 1; --tensor) {
        const Sizes sizes{tensor, n / tensor, 1};
        Hardware fewer = hardware_;
        fewer.devices = n;
        if (n % tensor != 0 || impossible(metadata_, fewer, sizes, across())) continue;
        if (tensor_pipeline(metadata_, sizes, demand_, demand_.concurrency).need() <= hardware_.device_memory) return n;
      }
    }
    return 0;
  }

  /// Returns the largest number of devices, below the given one, that some layout uses entirely, with that layout.
  /// `enough` devices always fit.
  std::string usable(int enough) const {
    for (int n = hardware_.devices - 1; n >= enough; --n) {
      Decider fewer(*this, n);
      std::vector<Candidate> candidates;
      for (const Sizes& sizes : choices(fewer.hardware_, fewer.constraints_).sizes)
        candidates.push_back(fewer.attempt(sizes));
      if (const auto choice = choose(candidates, constraints_.objective))
        return devices(n) + " can be used (" + candidates[choice->index].name + ")";
    }
    return "";
  }

  Decider(const Decider& other, int devices)
      : metadata_(other.metadata_),
        companions_(other.companions_),
        hardware_(with_devices(other.hardware_, devices)),
        constraints_(other.constraints_),
        demand_(other.demand_) {
    demand_.devices_of_a_node = devices_of_a_node(hardware_);
  }
  static Hardware with_devices(Hardware hardware, int devices) {
    hardware.devices = devices;
    return hardware;
  }

  Plan plan_of(const Candidate& chosen) const {
    const Layout& layout = *chosen.layout;
    Plan plan;
    plan.strategy = constraints_.strategy.value_or(chosen.strategy);
    plan.tensor = chosen.sizes.tensor;
    plan.pipeline = chosen.sizes.pipeline;
    plan.data = chosen.sizes.data;
    plan.micro_batches = layout.micro_batches;
    plan.gathering = layout.gathering;
    plan.objective = constraints_.objective;
    plan.precision = demand_.precision;
    plan.kv_precision = demand_.kv_precision;
    plan.sequence_length = demand_.sequence_length;
    plan.step_tokens = layout.step_tokens;
    plan.kv_blocks = layout.kv_blocks;
    plan.concurrency = layout.concurrency;
    plan.shm_bytes = segment_bytes(chosen.sizes.devices());
    plan.device_memory = hardware_.device_memory;
    plan.memory_source = hardware_.memory_source;
    plan.adapter_bytes = companions_.adapters;
    plan.draft = companions_.draft;
    plan.estimate = layout.estimate;
    plan.hardware_values = listed(demand_.hardware_values);
    for (int rank = 0; rank < chosen.sizes.devices(); ++rank) plan.ranks.push_back(rank_plan(rank, layout));
    return plan;
  }

  RankPlan rank_plan(int rank, const Layout& layout) const {
    const int dp_local = rank % static_cast<int>(layout.ranks.size()), t = rank % layout.sizes.tensor;
    const Stage& stage = layout.stage_of(static_cast<size_t>(dp_local));
    RankPlan out;
    out.rank = rank;
    out.dp_rank = rank / static_cast<int>(layout.ranks.size());
    out.stage = dp_local / layout.sizes.tensor;
    out.tensor = t;
    out.predicted = layout.ranks[static_cast<size_t>(dp_local)];
    if (!layout.weights.empty()) out.predicted.weights = layout.weights[static_cast<size_t>(rank)];
    out.predicted.kv =
        layout.kv_blocks * block_tokens *
            kv_bytes_per_token(stage.metadata, stage.partition, t, demand_.precision, demand_.kv_precision) +
        per_dp_rank(layout.concurrency, layout.sizes.data) *
            state_bytes_per_sequence(stage.metadata, stage.partition, t);
    for (const Partition::Row& row : stage.partition.rows())
      out.rows.push_back({row.stack, row.axis, row.units, {row.ranges[static_cast<size_t>(t)]}, row.layout});
    out.layers = stage.layers;
    return out;
  }

  const ModelMetadata& metadata_;
  const Companions companions_;
  const Hardware hardware_;
  const PlanConstraints& constraints_;
  Demand demand_;
};

}  // namespace

Decision decide(const ModelMetadata& metadata, const Hardware& hardware, const PlanConstraints& constraints) {
  try {
    return Decider(metadata, hardware, constraints).run();
  } catch (const std::invalid_argument& error) {  // the heads in the metadata cannot be partitioned
    return {{}, Refusal{Reason::InvalidSizes, error.what(), {}}};
  }
}

}  // namespace pm
