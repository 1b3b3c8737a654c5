// See explain.h.
#include "planner/explain.h"

#include <algorithm>

#include "planner/layouts.h"
#include "planner/words.h"

namespace pm {

namespace {

constexpr size_t most_rejected = 16;

std::string largest_term(const Memory& memory) {
  const std::pair<int64_t, const char*> terms[] = {{memory.weights, "the weights"}, {memory.kv, "the KV cache"}, {memory.activations, "the activations"},
                                                   {memory.communicator, "the communicator's buffers"}, {memory.runtime, "the runtime of the process"}};
  return std::max_element(std::begin(terms), std::end(terms), [](const auto& a, const auto& b) { return a.first < b.first; })->second;
}

std::string sequences(int64_t count) { return number(count) + (count == 1 ? " sequence" : " sequences"); }

/// What the demand is counted in: sequences that are answered at once, or inputs.
std::string asked(const Explainer& e) {
  const int64_t count = e.demand.concurrency;
  return e.facts.task == "generate" ? sequences(count) : number(count) + (count == 1 ? " input" : " inputs");
}

/// "1.2 ms a token, 812 tokens/s with 64 sequences"
std::string times(const Explainer& e, const Estimate& estimate) {
  return seconds(estimate.token_seconds) + (e.facts.task == "generate" ? " a token, " : " a pass, ") + tokens_rate(estimate.tokens_per_second) + " with " + asked(e);
}

std::string score(const Explainer& e, const Estimate& estimate) {
  switch (e.wishes.objective) {
    case Objective::Latency: return seconds(estimate.token_seconds) + (e.facts.task == "generate" ? " a token" : " a pass");
    case Objective::Throughput: return tokens_rate(estimate.tokens_per_second) + " with " + asked(e);
    case Objective::Memory: return bytes(estimate.bytes) + " on the fullest device";
  }
  return "";
}

std::string device_size(const Explainer& e) { return bytes(e.hardware.device_memory) + " per device (" + e.hardware.memory_source + ")"; }

bool cuts_nothing(const Sizes& sizes) { return sizes.tensor == 1 && sizes.pipeline == 1; }

/// The best that fits beside the chosen one and is no better than it.
const Candidate* runner_up(const Explainer& e, const std::vector<Candidate>& all, size_t chosen) {
  const Candidate* next = nullptr;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == chosen || !all[i].fits || all[i].impossible || better(e.wishes.objective, all[i].layout->estimate, all[chosen].layout->estimate)) continue;
    if (!next || better(e.wishes.objective, all[i].layout->estimate, next->layout->estimate)) next = &all[i];
  }
  return next;
}

/// One dead rank ends a group, with all its lanes; replicas end alone.
std::string advice(const Explainer& e, const Sizes& sizes) {
  const int n = sizes.devices();
  if (sizes.data > 1) {
    return "; one dead rank ends all " + number(sizes.data) + " lanes: replicas: " + number(sizes.data) + " with " + devices(n / sizes.data) + " each serve the same and end alone";
  }
  if (e.fewest > 0 && n >= 2 * e.fewest) {
    const int groups = n / e.fewest;
    return "; replicas: " + number(groups) + " with " + devices(e.fewest) + " each would serve more requests at once and end alone" +
           (n % e.fewest > 0 ? ", " + devices(n % e.fewest) + " idle" : "");
  }
  return "";
}

std::string layer_words(const Explainer& e) {
  const int64_t layer = largest_layer(e.facts, e.demand.precision);
  return layer > e.hardware.device_memory ? "; one layer alone is " + bytes(layer) + ", which stages cannot cut and heads can (Tensor)" : "";
}

}  // namespace

std::string Explainer::arithmetic(const Memory& memory) const {
  const std::string kv = memory.kv > 0 ? " + KV of one sequence of " + number(demand.sequence_length) + " tokens " + bytes(memory.kv) : "";
  return "weights " + bytes(memory.weights) + kv + " + activations " + bytes(memory.activations) + " + communicator " + bytes(memory.communicator) + " + runtime " +
         bytes(memory.runtime) + " = " + bytes(memory.total());
}

Rejected Explainer::rejected(const Candidate& one, const Candidate* chosen) const {
  if (one.impossible) return *one.impossible;
  const Layout& layout = *one.layout;
  const std::string limit = bytes(hardware.device_memory);
  if (!one.fits) return {one.name, "DoesNotFit", arithmetic(layout.ranks[layout.fullest]) + ", more than " + limit + layer_words(*this), layout.estimate};
  const std::string numbers = times(*this, layout.estimate) + ", " + bytes(layout.need()) + " of " + limit + " per device";
  if (!chosen) return {one.name, "NotChosen", numbers, layout.estimate};
  if (better(wishes.objective, layout.estimate, chosen->layout->estimate)) {
    return {one.name, "HoldsTooFew", numbers + "; it holds " + number(layout.concurrency) + " of " + sequences(demand.concurrency) + " at once, less than a quarter", layout.estimate};
  }
  const char* reason = wishes.objective == Objective::Latency ? "Slower" : wishes.objective == Objective::Throughput ? "LowerThroughput" : "MoreMemory";
  return {one.name, reason, numbers, layout.estimate};
}

std::string Explainer::reason(const std::vector<Candidate>& all, const Choice& choice, bool fixed) const {
  const Candidate& chosen = all[choice.index];
  if (fixed) return "UserFixed";
  if (chosen.layout->gathering) return "NothingElseFits";
  if (chosen.sizes.devices() == 1) return "FitsOneDevice";
  const auto fitting = std::count_if(all.begin(), all.end(), [](const Candidate& one) { return one.fits && !one.impossible; });
  if (fitting == 1) return "OnlyOneThatFits";
  if (choice.for_room) return "MostRoom";
  if (wishes.objective == Objective::Memory) return "LeastMemory";
  if (cuts_nothing(chosen.sizes) && wishes.objective == Objective::Latency) return "GainsNothingFromCutting";
  return wishes.objective == Objective::Latency ? "LowestLatency" : "HighestThroughput";
}

std::string Explainer::message(const std::vector<Candidate>& all, const Choice& choice, const std::string& reason) const {
  const Candidate& chosen = all[choice.index];
  const Layout& layout = *chosen.layout;
  const Candidate* next = runner_up(*this, all, choice.index);
  const std::string against = next ? " (next " + next->name + ": " + score(*this, next->layout->estimate) + ")" : "";
  std::string why = "as asked";
  if (reason == "NothingElseFits") why = "no layout fits that keeps the weights on the devices";
  if (reason == "FitsOneDevice") why = "one device holds it";
  if (reason == "OnlyOneThatFits") why = "no other layout of the devices fits";
  if (reason == "MostRoom") why = "the most room for sequences, for layouts that are better by " + std::string(name_of(wishes.objective)) + " hold less than a quarter of the " + sequences(demand.concurrency);
  if (reason == "LeastMemory") why = "the least memory of the layouts that fit" + against;
  if (reason == "LowestLatency") why = "the lowest latency of the layouts that fit" + against;
  if (reason == "HighestThroughput") why = "the highest throughput of the layouts that fit" + against;
  if (reason == "GainsNothingFromCutting") why = "cutting it gains nothing" + against;
  Memory fullest = layout.ranks[layout.fullest];
  std::string text = chosen.name + " over " + devices(hardware.devices) + ": " + why + ", " + times(*this, layout.estimate) + "; weights " + bytes(fullest.weights) + ", " +
                     bytes(fullest.total()) + (fullest.kv > 0 ? " with one sequence" : " in all") + " of " + device_size(*this);
  text += layout.kv_blocks > 0 ? ", room for " + sequences(layout.concurrency) + " of " : ", no KV cache; each input in one pass, up to ";
  text += number(demand.sequence_length) + " tokens";
  if (wishes.max_sequence_length > demand.sequence_length) {
    text += "; " + number(wishes.max_sequence_length) + " tokens were asked for, the model has " + number(demand.sequence_length) + " positions";
  }
  if (fewest > 0) text += "; the fewest such devices that fit: " + number(fewest);
  if (layout.gathering) text += "; weights come together in two buffers of " + bytes(layout.gathering->buffer) + ": " + chosen.note;
  else text += advice(*this, chosen.sizes);
  if (!usable.empty()) text += "; " + usable;
  const bool files = layout.gathering && layout.gathering->from == Residency::File;
  const std::string guesses = assumed(demand.figures, hardware.devices > 1, demand.devices_of_a_node < hardware.devices, files);
  return guesses.empty() ? text : text + "; assumed: " + guesses;
}

Refusal Explainer::does_not_fit(const std::vector<Candidate>& all) const {
  const Candidate* nearest = nullptr;
  for (const Candidate& one : all) {
    if (one.layout && !one.impossible && (!nearest || one.layout->need() < nearest->layout->need())) nearest = &one;
  }
  Refusal refusal{"DoesNotFit", "", alternatives(*this, all, std::nullopt)};
  if (!nearest) {   // sizes that the model or the nodes do not allow
    refusal.reason = "InvalidSizes";
    for (const Candidate& one : all) {
      if (one.impossible && one.impossible->reason != "NotNeeded" && refusal.message.empty()) refusal.message = one.impossible->message;
    }
    return refusal;
  }
  const Layout& layout = *nearest->layout;
  refusal.message = nearest->name + " over " + devices(hardware.devices) + " needs on rank " + number(static_cast<int64_t>(layout.fullest)) + ": " + arithmetic(layout.ranks[layout.fullest]) +
                    ", but there are " + device_size(*this) + "; the largest term is " + largest_term(layout.ranks[layout.fullest]) + layer_words(*this) + ". " +
                    (!usable.empty() ? "No layout of " + devices(hardware.devices) + " fits, but " + usable + "."
                     : fewest > 0 ? "The fewest such devices that fit: " + number(fewest) + "." : "No number of such devices up to 64 fits; " + number(hardware.devices) + " would need " + bytes(layout.need()) + " each.");
  return refusal;
}

std::vector<Rejected> alternatives(const Explainer& explainer, const std::vector<Candidate>& all, std::optional<size_t> chosen) {
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); ++i) {
    if (chosen != i) order.push_back(i);
  }
  const auto rank = [&](size_t i) {
    const Candidate& one = all[i];
    if (one.impossible) return one.impossible->reason == "NotNeeded" ? 1 : 3;
    return one.fits ? 0 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return rank(a) == 0 && better(explainer.wishes.objective, all[a].layout->estimate, all[b].layout->estimate);
  });
  if (order.size() > most_rejected) order.resize(most_rejected);
  std::vector<Rejected> out;
  for (const size_t i : order) out.push_back(explainer.rejected(all[i], chosen ? &all[*chosen] : nullptr));
  return out;
}

}  // namespace pm
