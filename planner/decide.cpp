// The decision: one device group, tensor strategy. See plan.h.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <limits>

#include "planner/memory.h"
#include "planner/plan.h"
#include "planner/words.h"

namespace pm {

namespace {

constexpr int64_t longest_by_default = 8192;
constexpr int64_t length_without_positions = 2048;  ///< for families whose positions have no limit (relative biases)
constexpr int64_t kv_share_percent = 90;            ///< of what is left after the first sequence; the rest is slack for what is only bounded

std::string heads_limit(const Facts& facts, int64_t& most) {
  most = std::numeric_limits<int64_t>::max();
  std::string which;
  for (const StackFacts& stack : facts.stacks) {
    if (stack.heads > 0 && stack.heads < most) {
      most = stack.heads;
      which = "the " + stack.name + " has " + number(stack.heads) + " attention heads";
    }
  }
  if (which.empty()) {
    most = 1;
    which = "the model has no attention heads";
  }
  return which;
}

/// What one count of devices would hold, before any KV beyond one sequence.
struct Trial {
  Cuts cuts;
  std::vector<Memory> ranks;
  size_t fullest = 0;
  int64_t need() const { return ranks[fullest].total(); }
};

class Decider {
 public:
  Decider(const Facts& facts, const Hardware& hardware, const Wishes& wishes) : facts_(facts), hardware_(hardware), wishes_(wishes) {}

  Decision run() {
    const std::string limit = heads_limit(facts_, most_);
    if (auto refusal = refuse_wishes()) return {{}, refusal};
    if (auto refusal = refuse_sizes(limit)) return {{}, refusal};
    const int n = hardware_.devices;
    const Trial chosen = trial(n);
    smallest_ = smallest();
    if (chosen.need() > hardware_.device_memory) return {{}, does_not_fit(n, chosen)};
    return {plan(n, chosen), {}};
  }

 private:
  std::optional<Refusal> refuse_wishes() {
    if (wishes_.strategy && *wishes_.strategy != Strategy::Tensor) {
      return Refusal{"UnsupportedStrategy", std::string(name_of(*wishes_.strategy)) + " is not served by this version; Tensor is", {}};
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
    return {};
  }

  static bool served(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }

  std::optional<Refusal> refuse_sizes(const std::string& limit) {
    const int n = hardware_.devices;
    if (n < 1) return Refusal{"InvalidSizes", number(n) + " devices given; at least 1 is needed", {}};
    if (wishes_.tensor && *wishes_.tensor != n) {
      return Refusal{"InvalidSizes", "tensor=" + number(*wishes_.tensor) + " does not use the " + devices(n) + " of a group, and this version serves no other "
                                     "axis that could; set both to the same number, or use replicas for more groups", {}};
    }
    if (n > most_) {
      return Refusal{"InvalidSizes", devices(n) + " given, but " + limit + " and each rank needs at least one; use at most " + devices(most_) +
                                     ", or replicas for more groups",
                     {{"Tensor x " + number(n), "MoreRanksThanHeads", number(n) + " ranks, " + number(most_) + " heads"}}};
    }
    if (hardware_.devices_per_node > 0 && n > hardware_.devices_per_node) {
      return Refusal{"InvalidSizes", devices(n) + " at " + number(hardware_.devices_per_node) + " per node span nodes; a tensor group stays inside one node: use at most " +
                                     devices(hardware_.devices_per_node), {}};
    }
    return {};
  }

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

  /// Of the answer and, with cross-attention, of a source as long as it.
  int64_t blocks_per_sequence() const {
    const bool cross = std::any_of(facts_.stacks.begin(), facts_.stacks.end(), [](const StackFacts& stack) { return stack.cross; });
    return (sequence_length() + block_tokens - 1) / block_tokens * (cross ? 2 : 1);
  }

  Trial trial(int n) const {
    Trial trial{deal(facts_, n, precision_), {}, 0};
    for (int rank = 0; rank < n; ++rank) {
      Memory memory;
      memory.weights = trial.cuts.weight_bytes(facts_, rank);
      memory.kv = blocks_per_sequence() * block_tokens * kv_bytes_per_token(facts_, trial.cuts, rank, precision_);
      memory.activations = activation_bytes(facts_, trial.cuts, rank, sequence_length(), wishes_.max_concurrency);
      memory.communicator = (segment_bytes(n) + n - 1) / n;
      memory.runtime = runtime_bytes(hardware_.kind);
      trial.ranks.push_back(memory);
      if (memory.total() > trial.need()) trial.fullest = static_cast<size_t>(rank);
    }
    return trial;
  }

  /// The fewest devices of this kind that fit, at most as many as there are heads; 0 when none does.
  int smallest() const {
    for (int n = 1; n <= std::min<int64_t>(most_, 1024); ++n) {
      if (trial(n).need() <= hardware_.device_memory) return n;
    }
    return 0;
  }

  std::string device_size() const { return bytes(hardware_.device_memory) + " per device (" + hardware_.memory_source + ")"; }

  /// "weights 5.0 GiB + KV of one sequence 1.2 GiB + ... = 7.1 GiB"; no KV for models that answer in one pass
  std::string arithmetic(const Memory& memory) const {
    const std::string kv = memory.kv > 0 ? " + KV of one sequence of " + number(sequence_length()) + " tokens " + bytes(memory.kv) : "";
    return "weights " + bytes(memory.weights) + kv + " + activations " + bytes(memory.activations) + " + communicator " + bytes(memory.communicator) + " + runtime " + bytes(memory.runtime) +
           " = " + bytes(memory.total());
  }

  static std::string largest_term(const Memory& memory) {
    const std::pair<int64_t, const char*> terms[] = {{memory.weights, "the weights"}, {memory.kv, "the KV cache"},
                                                     {memory.activations, "the activations"}, {memory.communicator, "the communicator's buffers"},
                                                     {memory.runtime, "the runtime of the process"}};
    return std::max_element(std::begin(terms), std::end(terms), [](const auto& a, const auto& b) { return a.first < b.first; })->second;
  }

  Rejected rejected(int n) const {
    const Trial tried = trial(n);
    const bool fits = tried.need() <= hardware_.device_memory;
    return {"Tensor x " + number(n), fits ? "FewerDevicesThanGiven" : "DoesNotFit",
            fits ? "would need " + bytes(tried.need()) + " of " + bytes(hardware_.device_memory) + " per device and leave " +
                       number(hardware_.devices - n) + " of " + devices(hardware_.devices) + " idle"
                 : arithmetic(tried.ranks[tried.fullest]) + ", more than " + bytes(hardware_.device_memory)};
  }

  /// One line for each turning point among fewer devices: one, the largest that is too small, the smallest that fits.
  std::vector<Rejected> alternatives(int n) const {
    std::vector<Rejected> list;
    std::vector<int> counts{1, smallest_ - 1, smallest_};
    if (smallest_ == 0) counts = {1};
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    for (const int count : counts) {
      if (count >= 1 && count < n) list.push_back(rejected(count));
    }
    list.push_back({"Pipeline, Data, Sharded, Offload", "NotServed", "this version serves Tensor only"});
    return list;
  }

  Refusal does_not_fit(int n, const Trial& chosen) const {
    const Memory& memory = chosen.ranks[chosen.fullest];
    std::string message = "Tensor over " + devices(n) + " needs on rank " + number(static_cast<int64_t>(chosen.fullest)) + ": " + arithmetic(memory) +
                          ", but there are " + device_size() + "; the largest term is " + largest_term(memory) + ". ";
    if (smallest_ > 0) {
      message += "The fewest such devices that fit: " + number(smallest_) + ".";
    } else {
      const Trial widest = trial(static_cast<int>(std::min<int64_t>(most_, 1024)));
      message += "No number of such devices fits (at most " + number(most_) + " ranks, one per head); " + number(n) + " would need " +
                 bytes(memory.total()) + " each, " + number(std::min<int64_t>(most_, 1024)) + " would need " + bytes(widest.need()) + " each.";
    }
    Refusal refusal{"DoesNotFit", message, alternatives(n)};
    if (smallest_ > n) refusal.rejected.insert(refusal.rejected.begin(), rejected(n));
    return refusal;
  }

  /// Blocks that the fullest rank has room for, at least one sequence, at most as many as the concurrency can fill.
  int64_t kv_blocks(const Trial& chosen) const {
    const int64_t wanted = blocks_per_sequence() * wishes_.max_concurrency;
    int64_t blocks = wanted;
    bool cache = false;
    for (size_t rank = 0; rank < chosen.ranks.size(); ++rank) {
      const int64_t each = block_tokens * kv_bytes_per_token(facts_, chosen.cuts, static_cast<int>(rank), precision_);
      if (each == 0) continue;
      cache = true;
      const int64_t left = hardware_.device_memory - chosen.ranks[rank].total();
      blocks = std::min(blocks, blocks_per_sequence() + left / 100 * kv_share_percent / each);
    }
    return cache ? blocks : 0;
  }

  Plan plan(int n, const Trial& chosen) const {
    Plan plan;
    plan.tensor = n;
    plan.precision = precision_;
    plan.sequence_length = sequence_length();
    plan.kv_blocks = kv_blocks(chosen);
    plan.concurrency = plan.kv_blocks > 0 ? std::clamp<int64_t>(plan.kv_blocks / blocks_per_sequence(), 1, wishes_.max_concurrency) : wishes_.max_concurrency;
    plan.shm_bytes = segment_bytes(n);
    plan.device_memory = hardware_.device_memory;
    plan.memory_source = hardware_.memory_source;
    for (int rank = 0; rank < n; ++rank) plan.ranks.push_back(rank_plan(rank, chosen, plan.kv_blocks));
    plan.reason = wishes_.tensor ? "UserFixed" : smallest_ == n ? "SmallestThatFits" : "UsesAllDevices";
    plan.message = message(n, plan);
    plan.rejected = alternatives(n);
    return plan;
  }

  RankPlan rank_plan(int rank, const Trial& chosen, int64_t blocks) const {
    RankPlan out;
    out.rank = out.tensor = rank;
    out.predicted = chosen.ranks[static_cast<size_t>(rank)];
    out.predicted.kv = blocks * block_tokens * kv_bytes_per_token(facts_, chosen.cuts, rank, precision_);
    for (const Cuts::Row& row : chosen.cuts.rows()) out.rows.push_back({row.stack, row.axis, row.units, {row.ranges[static_cast<size_t>(rank)]}});
    for (const StackFacts& stack : facts_.stacks) out.layers.push_back({stack.name, {0, stack.layers}});
    return out;
  }

  std::string message(int n, const Plan& plan) const {
    int64_t weights = 0, need = 0;
    for (const RankPlan& rank : plan.ranks) {
      weights = std::max(weights, rank.predicted.weights);
      need = std::max(need, rank.predicted.total());
    }
    std::string text = "Tensor over " + devices(n) + ": weights " + bytes(weights) + ", " + bytes(need) + " in all of " + device_size() +
                       (plan.kv_blocks > 0 ? ", room for " + number(plan.concurrency) + (plan.concurrency == 1 ? " sequence of " : " sequences of ")
                                           : ", no KV cache; each input in one pass, up to ") + number(plan.sequence_length) + " tokens; ";
    if (wishes_.max_sequence_length > plan.sequence_length) {
      text += number(wishes_.max_sequence_length) + " tokens were asked for, the model has " + number(plan.sequence_length) + " positions; ";
    }
    return text + "the fewest such devices that fit: " + number(smallest_);
  }

  const Facts& facts_;
  const Hardware& hardware_;
  const Wishes& wishes_;
  int64_t most_ = 1;
  DType precision_ = DType::F32;
  int smallest_ = 0;
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
