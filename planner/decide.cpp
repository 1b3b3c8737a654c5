// The decision: every layout of the devices is tried, and the best by the objective is taken. See plan.h and docs/planner.md.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/explain.h"
#include "planner/layouts.h"
#include "planner/memory.h"
#include "planner/words.h"

namespace pm {

namespace {

constexpr int64_t longest_by_default = 8192;
constexpr int64_t length_without_positions = 2048;  ///< for families whose positions have no limit (relative biases)
constexpr int most_tried = 64;                      ///< devices up to which the fewest that fit are looked for
constexpr int64_t least_share = 4;                  ///< a layout is roomy when it holds one in so many of the sequences asked for

bool computed(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }
bool quantises(const Facts& facts) { return std::any_of(facts.parts.begin(), facts.parts.end(), [](const Part& part) { return part.quantised.elements > 0; }); }

/// The longest sequence that is served: as asked, but not beyond the positions of a causal stack.
int64_t sequence_length(const Facts& facts, int64_t wished) {
  int64_t positions = 0;
  for (const StackFacts& stack : facts.stacks) {
    if (stack.positions <= 0) continue;
    const bool shorter = facts.task == "generate" ? stack.positions < positions : stack.positions > positions;   // towers have inputs of their own
    if (positions == 0 || shorter) positions = stack.positions;
  }
  if (wished > 0) return positions > 0 ? std::min(positions, wished) : wished;
  return positions > 0 ? std::min(positions, longest_by_default) : length_without_positions;
}

class Decider {
 public:
  Decider(const Facts& facts, const Hardware& hardware, const Wishes& wishes) : facts_(facts), hardware_(with_memory(hardware)), wishes_(wishes) {
    demand_.kind = hardware.kind;
    demand_.precision = wishes.precision.value_or(computed(facts.dtype) ? facts.dtype : DType::F32);
    demand_.device_memory = hardware_.device_memory;
    demand_.sequence_length = sequence_length(facts, wishes.max_sequence_length);
    demand_.concurrency = wishes.max_concurrency;
    demand_.devices_of_a_node = std::max(1, devices_of_a_node(hardware));
    demand_.micro_batches = wishes.micro_batches;
    demand_.figures = figures_of(hardware);
  }

  Decision run() {
    if (auto refusal = refuse_wishes()) return {{}, refusal};
    const bool gathered = wishes_.strategy == Strategy::Sharded || wishes_.strategy == Strategy::Offload;
    if (auto refusal = gathered ? refuse_gathered() : std::nullopt) return {{}, refusal};
    Choices allowed = choices(hardware_, wishes_);
    if (allowed.refusal) return {{}, allowed.refusal};
    std::vector<Candidate> candidates;
    if (gathered) try_gathered(*wishes_.strategy, candidates);
    else for (const Sizes& sizes : allowed.sizes) candidates.push_back(attempt(sizes));
    std::optional<Choice> choice = choose(candidates, wishes_.objective);
    Explainer explainer{facts_, hardware_, wishes_, demand_, fewest()};
    if (!choice && !allowed.fixed) {   // what the devices cannot hold comes by in each pass
      if (explainer.fewest > 0 && explainer.fewest < hardware_.devices) explainer.usable = usable(explainer.fewest);
      for (const Strategy strategy : {Strategy::Sharded, Strategy::Offload}) try_gathered(strategy, candidates);
      choice = choose(candidates, wishes_.objective);
    } else if (!allowed.fixed && hardware_.devices > 1) {
      for (const Strategy strategy : {Strategy::Sharded, Strategy::Offload}) candidates.push_back(not_needed(strategy));
    }
    if (!choice) return {{}, explainer.does_not_fit(candidates)};
    Plan plan = plan_of(candidates[choice->index]);
    plan.reason = explainer.reason(candidates, *choice, allowed.fixed);
    plan.message = explainer.message(candidates, *choice, plan.reason);
    plan.rejected = alternatives(explainer, candidates, choice->index);
    return {std::move(plan), {}};
  }

 private:
  std::optional<Refusal> refuse_wishes() const {
    if (!computed(demand_.precision) && demand_.precision != DType::I8) {
      return Refusal{"UnsupportedPrecision", std::string(name_of(demand_.precision)) + " is not served by this version; F32, F16, BF16 and I8 are", {}};
    }
    if (demand_.precision == DType::I8 && !quantises(facts_)) {
      return Refusal{"UnsupportedPrecision", "I8 holds matrices of layers as int8, and the facts of this model name none; leave the precision out, or let facts be made anew if an earlier version made them", {}};
    }
    if (hardware_.device_memory <= 0) {
      const std::string product = hardware_.product.empty() ? "" : " (the product " + hardware_.product + " is not in the planner's table)";
      return Refusal{"DeviceMemoryUnknown", "the memory of a device is not known" + product + "; state it (spec.devices.memory, --device-memory)", {}};
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

  /// Sizes and places that Sharded and Offload do not have.
  std::optional<Refusal> refuse_gathered() const {
    const std::string name(name_of(*wishes_.strategy)), n = number(hardware_.devices);
    if (wishes_.tensor.value_or(1) > 1 || wishes_.pipeline.value_or(1) > 1) {
      return Refusal{"InvalidSizes", "strategy " + name + " is not combined with tensor or pipeline; give data=" + n + " alone, or leave the sizes out", {}};
    }
    if (wishes_.data && *wishes_.data != hardware_.devices) {
      return Refusal{"InvalidSizes", "strategy " + name + " with data=" + number(*wishes_.data) + ", and " + devices(hardware_.devices) + " are given to a group, which all take part; give data=" + n, {}};
    }
    if (residency() != Residency::HostMemory) return {};
    const bool known = demand_.figures.host_memory.value > 0;
    if (hardware_.kind != DeviceKind::CPU && (!known || host_holds())) return {};
    const std::string why = hardware_.kind == DeviceKind::CPU ? "the memory of a rank on a CPU is the host's own, so that nothing would leave it" : host_words().substr(2);
    return Refusal{"UnsupportedStrategy", "Offload to HostMemory: " + why + ". Use File, or Tensor, Pipeline or Sharded, which keep 1/n of the model on each of n devices", {}};
  }

  /// Of Offload, where weights are kept.
  Residency residency() const { return wishes_.strategy == Strategy::Offload ? wishes_.offload_to.value_or(Residency::File) : Residency::File; }

  /// Whoever asks for tensor ranks gets them, on as many nodes as they take.
  bool across() const { return wishes_.tensor || wishes_.strategy == Strategy::Tensor; }

  Candidate attempt(const Sizes& sizes) const {
    Candidate out{.strategy = main_axis(sizes), .name = name_of(sizes), .sizes = sizes, .impossible = impossible(facts_, hardware_, sizes, across())};
    if (!out.impossible) judge(out, lanes(facts_, sizes, demand_));
    return out;
  }

  Candidate attempt_gathered(Strategy strategy, Unit unit) const {
    const int n = std::max(1, hardware_.devices);
    Gathered model = strategy == Strategy::Sharded ? sharded(facts_, n, unit, demand_) : offloaded(facts_, n, unit, residency(), demand_);
    Candidate out{.strategy = strategy, .name = std::string(name_of(strategy)) + " x " + number(n) + (unit == Unit::Tile ? " in tiles" : ""), .sizes = model.layout.sizes, .note = model.bound};
    if (strategy == Strategy::Offload) out.note += host_words();
    judge(out, std::move(model.layout));
    return out;
  }

  /// A layer at a time; where that does not fit in tiles as well.
  void try_gathered(Strategy strategy, std::vector<Candidate>& candidates) const {
    if (strategy == Strategy::Sharded && hardware_.devices == 1 && wishes_.strategy != Strategy::Sharded) return;
    for (const Unit unit : {Unit::Layer, Unit::Tile}) {
      candidates.push_back(attempt_gathered(strategy, unit));
      if (candidates.back().fits) return;
    }
  }

  /// Its numbers, for whoever might want it: what is gathered in each pass is slow on most links and files, so that it is taken when nothing else fits.
  Candidate not_needed(Strategy strategy) const {
    Candidate out = attempt_gathered(strategy, Unit::Layer);
    const Estimate& estimate = out.layout->estimate;
    std::string message = "taken when it is asked for or nothing else fits; it would need " + bytes(estimate.bytes) + " of " + bytes(hardware_.device_memory) + " per device, with two buffers of " +
                          bytes(out.layout->gathering->buffer) + ", and take " + seconds(estimate.token_seconds) + (facts_.task == "generate" ? " a token" : " a pass") + ", for " + out.note;
    out.impossible = Rejected{out.name, "NotNeeded", message, estimate};
    return out;
  }

  /// What the host needs to hold the weights.
  double host_needs() const { return 1.1 * static_cast<double>(deal(facts_, 1, demand_.precision).weight_bytes(facts_, 0)); }
  bool host_holds() const { return host_needs() <= demand_.figures.host_memory.value; }

  /// Whether the host's memory would hold the weights, or they would stay in their file.
  std::string host_words() const {
    if (demand_.figures.host_memory.value <= 0) return "";
    const double needed = host_needs();
    const auto text = [](double value) { return bytes(static_cast<int64_t>(value)); };
    return host_holds() ? "; the host's " + text(demand_.figures.host_memory.value) + " would hold them"
                 : "; the host's " + text(demand_.figures.host_memory.value) + " are less than the " + text(needed) + " they take, so that they would stay in their file";
  }

  void judge(Candidate& candidate, Layout layout) const {
    candidate.fits = layout.need() <= hardware_.device_memory;
    candidate.roomy = layout.kv_blocks == 0 || layout.concurrency * least_share >= demand_.concurrency;
    candidate.layout = std::move(layout);
  }

  /// The fewest devices of this kind that hold one copy, whatever the layout; 0 when none was found.
  int fewest() const {
    const int64_t weights = deal(facts_, 1, demand_.precision).weight_bytes(facts_, 0);
    for (int n = 1; n <= most_tried; ++n) {
      if (weights / n > hardware_.device_memory) continue;
      for (int tensor = n; tensor >= 1; --tensor) {
        const Sizes sizes{tensor, n / tensor, 1};
        Hardware fewer = hardware_;
        fewer.devices = n;
        if (n % tensor != 0 || impossible(facts_, fewer, sizes, across())) continue;
        if (tensor_pipeline(facts_, sizes, demand_, demand_.concurrency).need() <= hardware_.device_memory) return n;
      }
    }
    return 0;
  }

  /// The most devices below those given that some layout uses all of, and that layout; `enough` of them always do.
  std::string usable(int enough) const {
    for (int n = hardware_.devices - 1; n >= enough; --n) {
      Decider fewer(*this, n);
      std::vector<Candidate> candidates;
      for (const Sizes& sizes : choices(fewer.hardware_, fewer.wishes_).sizes) candidates.push_back(fewer.attempt(sizes));
      if (const auto choice = choose(candidates, wishes_.objective)) return devices(n) + " can be used (" + candidates[choice->index].name + ")";
    }
    return "";
  }

  Decider(const Decider& other, int devices) : facts_(other.facts_), hardware_(with_devices(other.hardware_, devices)), wishes_(other.wishes_), demand_(other.demand_) {
    demand_.devices_of_a_node = devices_of_a_node(hardware_);
  }
  static Hardware with_devices(Hardware hardware, int devices) {
    hardware.devices = devices;
    return hardware;
  }

  Plan plan_of(const Candidate& chosen) const {
    const Layout& layout = *chosen.layout;
    Plan plan;
    plan.strategy = wishes_.strategy.value_or(chosen.strategy);
    plan.tensor = chosen.sizes.tensor;
    plan.pipeline = chosen.sizes.pipeline;
    plan.data = chosen.sizes.data;
    plan.micro_batches = layout.micro_batches;
    plan.gathering = layout.gathering;
    plan.objective = wishes_.objective;
    plan.precision = demand_.precision;
    plan.sequence_length = demand_.sequence_length;
    plan.kv_blocks = layout.kv_blocks;
    plan.concurrency = layout.concurrency;
    plan.shm_bytes = segment_bytes(chosen.sizes.devices());
    plan.device_memory = hardware_.device_memory;
    plan.memory_source = hardware_.memory_source;
    plan.estimate = layout.estimate;
    plan.figures = listed(demand_.figures);
    for (int rank = 0; rank < chosen.sizes.devices(); ++rank) plan.ranks.push_back(rank_plan(rank, layout));
    return plan;
  }

  RankPlan rank_plan(int rank, const Layout& layout) const {
    const int of_lane = rank % static_cast<int>(layout.ranks.size()), t = rank % layout.sizes.tensor;
    const Stage& stage = layout.stage_of(static_cast<size_t>(of_lane));
    RankPlan out;
    out.rank = rank;
    out.lane = rank / static_cast<int>(layout.ranks.size());
    out.stage = of_lane / layout.sizes.tensor;
    out.tensor = t;
    out.predicted = layout.ranks[static_cast<size_t>(of_lane)];
    if (!layout.weights.empty()) out.predicted.weights = layout.weights[static_cast<size_t>(rank)];
    out.predicted.kv = layout.kv_blocks * block_tokens * kv_bytes_per_token(stage.facts, stage.cuts, t, demand_.precision);
    for (const Cuts::Row& row : stage.cuts.rows()) out.rows.push_back({row.stack, row.axis, row.units, {row.ranges[static_cast<size_t>(t)]}});
    out.layers = stage.layers;
    return out;
  }

  const Facts& facts_;
  const Hardware hardware_;
  const Wishes& wishes_;
  Demand demand_;
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
