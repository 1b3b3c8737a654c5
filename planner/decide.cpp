// The decision. See plan.h and docs/planner.md.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/layouts.h"
#include "planner/memory.h"
#include "planner/words.h"

namespace pm {

namespace {

constexpr int64_t longest_by_default = 8192;
constexpr int64_t length_without_positions = 2048;  ///< for families whose positions have no limit (relative biases)
constexpr int most_tried = 64;                      ///< devices up to which the fewest that fit are looked for one by one

/// A layout that was tried: its numbers, or why there are none.
struct Tried {
  Sizes sizes;
  std::optional<Layout> layout;
  std::optional<Rejected> impossible;
};

class Decider {
 public:
  Decider(const Facts& facts, const Hardware& hardware, const Wishes& wishes) : facts_(facts), hardware_(hardware), wishes_(wishes) {}

  Decision run() {
    if (auto refusal = refuse_wishes()) return {{}, refusal};
    Choices allowed = choices(hardware_, wishes_);
    if (allowed.refusal) return {{}, allowed.refusal};
    fixed_ = allowed.fixed;
    demand_ = {hardware_.kind, precision_, hardware_.device_memory, sequence_length(), wishes_.max_concurrency};
    for (const Sizes& sizes : allowed.sizes) tried_.push_back(attempt(sizes));
    const auto fitting = std::find_if(tried_.begin(), tried_.end(), [&](const Tried& one) { return fits(one); });
    if (fitting == tried_.end()) return {{}, refuse()};
    return {plan(*fitting), {}};
  }

 private:
  std::optional<Refusal> refuse_wishes() {
    if (wishes_.strategy == Strategy::Sharded || wishes_.strategy == Strategy::Offload) {
      return Refusal{"UnsupportedStrategy", std::string(name_of(*wishes_.strategy)) + " is not served by this version; use Tensor or Pipeline to have less of the model on each device", {}};
    }
    precision_ = wishes_.precision.value_or(served(facts_.dtype) ? facts_.dtype : DType::F32);
    if (!served(precision_)) {
      return Refusal{"UnsupportedPrecision", std::string(name_of(precision_)) + " is not served by this version; F32, F16 and BF16 are", {}};
    }
    if (hardware_.device_memory <= 0) {
      return Refusal{"DeviceMemoryUnknown", "the memory of a device is not known; state it (spec.devices.memory, --device-memory)", {}};
    }
    if (wishes_.max_sequence_length < 0 || wishes_.max_concurrency < 1) {
      return Refusal{"InvalidSizes", "the longest sequence is " + number(wishes_.max_sequence_length) + " tokens and the concurrency " +
                                         number(wishes_.max_concurrency) + "; expected positive numbers", {}};
    }
    if (wishes_.micro_batches && (*wishes_.micro_batches < 1 || *wishes_.micro_batches > 1024)) {
      return Refusal{"InvalidSizes", number(*wishes_.micro_batches) + " micro-batches; expected 1 to 1024", {}};
    }
    return {};
  }

  static bool served(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }

  /// The longest sequence that is served: as asked, but not beyond the positions of a causal stack.
  int64_t sequence_length() const {
    int64_t positions = 0;
    for (const StackFacts& stack : facts_.stacks) {
      if (stack.positions <= 0) continue;
      const bool shorter = facts_.task == "generate" ? stack.positions < positions : stack.positions > positions;   // towers have inputs of their own
      if (positions == 0 || shorter) positions = stack.positions;
    }
    if (wishes_.max_sequence_length > 0) return positions > 0 ? std::min(positions, wishes_.max_sequence_length) : wishes_.max_sequence_length;
    return positions > 0 ? std::min(positions, longest_by_default) : length_without_positions;
  }

  bool fits(const Tried& one) const { return one.layout && one.layout->need() <= hardware_.device_memory; }

  Tried attempt(const Sizes& sizes) const {
    Tried tried{sizes, {}, impossible(facts_, hardware_, sizes)};
    if (!tried.impossible) tried.layout = tensor_pipeline(facts_, sizes, demand_);
    return tried;
  }

  /// The fewest devices of this kind that hold one copy, whatever the layout; 0 when none was found.
  int fewest() const {
    for (int n = 1; n <= most_tried; ++n) {
      for (int tensor = n; tensor >= 1; --tensor) {
        if (n % tensor == 0 && fits(attempt({tensor, n / tensor, 1}))) return n;
      }
    }
    return 0;
  }

  std::string device_size() const { return bytes(hardware_.device_memory) + " per device (" + hardware_.memory_source + ")"; }

  /// "weights 5.0 GiB + KV of one sequence 1.2 GiB + ... = 7.1 GiB"; no KV for models that answer in one pass
  std::string arithmetic(const Memory& memory) const {
    const std::string kv = memory.kv > 0 ? " + KV of one sequence of " + number(demand_.sequence_length) + " tokens " + bytes(memory.kv) : "";
    return "weights " + bytes(memory.weights) + kv + " + activations " + bytes(memory.activations) + " + communicator " + bytes(memory.communicator) + " + runtime " + bytes(memory.runtime) +
           " = " + bytes(memory.total());
  }

  static std::string largest_term(const Memory& memory) {
    const std::pair<int64_t, const char*> terms[] = {{memory.weights, "the weights"}, {memory.kv, "the KV cache"},
                                                     {memory.activations, "the activations"}, {memory.communicator, "the communicator's buffers"},
                                                     {memory.runtime, "the runtime of the process"}};
    return std::max_element(std::begin(terms), std::end(terms), [](const auto& a, const auto& b) { return a.first < b.first; })->second;
  }

  Rejected rejected(const Tried& one) const {
    if (one.impossible) return *one.impossible;
    const bool fit = fits(one);
    return {name_of(one.sizes), fit ? "NotChosen" : "DoesNotFit",
            fit ? "would need " + bytes(one.layout->need()) + " of " + bytes(hardware_.device_memory) + " per device"
                : arithmetic(one.layout->ranks[one.layout->fullest]) + ", more than " + bytes(hardware_.device_memory), Estimate{one.layout->need()}};
  }

  Refusal refuse() const {
    std::vector<Rejected> others;
    const Tried* nearest = nullptr;
    for (const Tried& one : tried_) {
      others.push_back(rejected(one));
      if (one.layout && (!nearest || one.layout->need() < nearest->layout->need())) nearest = &one;
    }
    if (!nearest) return {"InvalidSizes", others.empty() ? "no sizes agree with the wishes" : others[0].message, others};
    const Memory& memory = nearest->layout->ranks[nearest->layout->fullest];
    std::string message = name_of(nearest->sizes) + " over " + devices(hardware_.devices) + " needs on rank " + number(static_cast<int64_t>(nearest->layout->fullest)) + ": " +
                          arithmetic(memory) + ", but there are " + device_size() + "; the largest term is " + largest_term(memory) + ". ";
    const int enough = fewest();
    message += enough > 0 ? "The fewest such devices that fit: " + number(enough) + "." : "No number of such devices up to " + number(most_tried) + " fits.";
    return {"DoesNotFit", message, others};
  }

  Plan plan(const Tried& chosen) const {
    const Layout& layout = *chosen.layout;
    Plan plan;
    plan.strategy = wishes_.strategy.value_or(main_axis(chosen.sizes));
    plan.tensor = chosen.sizes.tensor;
    plan.pipeline = chosen.sizes.pipeline;
    plan.data = chosen.sizes.data;
    plan.micro_batches = wishes_.micro_batches.value_or(plan.pipeline);
    plan.objective = wishes_.objective;
    plan.precision = precision_;
    plan.sequence_length = demand_.sequence_length;
    plan.kv_blocks = layout.kv_blocks;
    plan.concurrency = std::min(wishes_.max_concurrency, layout.lane_concurrency * plan.data);
    plan.shm_bytes = segment_bytes(chosen.sizes.devices());
    plan.device_memory = hardware_.device_memory;
    plan.memory_source = hardware_.memory_source;
    plan.estimate.bytes = layout.need();
    for (int rank = 0; rank < chosen.sizes.devices(); ++rank) plan.ranks.push_back(rank_plan(rank, layout));
    plan.reason = fixed_ ? "UserFixed" : "UsesAllDevices";
    plan.message = message(chosen, plan);
    for (const Tried& one : tried_) {
      if (!(one.sizes == chosen.sizes)) plan.rejected.push_back(rejected(one));
    }
    return plan;
  }

  RankPlan rank_plan(int rank, const Layout& layout) const {
    const int of_lane = rank % (layout.sizes.tensor * layout.sizes.pipeline), t = rank % layout.sizes.tensor;
    const Stage& stage = layout.stage_of(static_cast<size_t>(of_lane));
    RankPlan out;
    out.rank = rank;
    out.lane = rank / (layout.sizes.tensor * layout.sizes.pipeline);
    out.stage = of_lane / layout.sizes.tensor;
    out.tensor = t;
    out.predicted = layout.ranks[static_cast<size_t>(of_lane)];
    out.predicted.kv = layout.kv_blocks * block_tokens * kv_bytes_per_token(stage.facts, stage.cuts, t, precision_);
    for (const Cuts::Row& row : stage.cuts.rows()) out.rows.push_back({row.stack, row.axis, row.units, {row.ranges[static_cast<size_t>(t)]}});
    out.layers = stage.layers;
    return out;
  }

  std::string message(const Tried& chosen, const Plan& plan) const {
    int64_t weights = 0, need = 0;
    for (const RankPlan& rank : plan.ranks) {
      weights = std::max(weights, rank.predicted.weights);
      need = std::max(need, rank.predicted.total());
    }
    std::string text = name_of(chosen.sizes) + " over " + devices(hardware_.devices) + ": weights " + bytes(weights) + ", " + bytes(need) + " in all of " + device_size() +
                       (plan.kv_blocks > 0 ? ", room for " + number(plan.concurrency) + (plan.concurrency == 1 ? " sequence of " : " sequences of ")
                                           : ", no KV cache; each input in one pass, up to ") + number(plan.sequence_length) + " tokens; ";
    if (wishes_.max_sequence_length > plan.sequence_length) {
      text += number(wishes_.max_sequence_length) + " tokens were asked for, the model has " + number(plan.sequence_length) + " positions; ";
    }
    return text + "the fewest such devices that fit: " + number(fewest());
  }

  const Facts& facts_;
  const Hardware& hardware_;
  const Wishes& wishes_;
  DType precision_ = DType::F32;
  bool fixed_ = false;
  Demand demand_;
  std::vector<Tried> tried_;
};

}  // namespace

Decision decide(const Facts& facts, const Hardware& hardware, const Wishes& wishes) {
  try {
    return Decider(facts, hardware, wishes).run();
  } catch (const std::invalid_argument& error) {   // facts whose heads cannot be dealt at all
    return {{}, Refusal{"InvalidSizes", error.what(), {}}};
  }
}

}  // namespace pm
