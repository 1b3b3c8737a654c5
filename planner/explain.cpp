// SPDX-License-Identifier: Apache-2.0
#include "planner/explain.h"

#include <algorithm>

#include "base/byte_size.h"
#include "planner/layouts.h"
#include "planner/text_format.h"

namespace pm {

using namespace text;

namespace {

constexpr size_t max_rejected = 16;

std::string largest_term(const Memory& memory) {
  const std::pair<int64_t, const char*> terms[] = {{memory.weights, "the weights"},
                                                   {memory.kv, "the KV cache"},
                                                   {memory.activations, "the activations"},
                                                   {memory.communicator, "the communicator's buffers"},
                                                   {memory.runtime, "the runtime of the process"}};
  return std::max_element(std::begin(terms), std::end(terms),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

std::string sequences(int64_t count) { return number(count) + (count == 1 ? " sequence" : " sequences"); }

/// Returns the concurrency as text: sequences for generation, inputs otherwise.
std::string demand_text(const Explainer& e) {
  const int64_t count = e.demand.concurrency;
  return e.metadata.task == "generate" ? sequences(count) : number(count) + (count == 1 ? " input" : " inputs");
}

/// "1.2 ms a token, 812 tokens/s with 64 sequences"
std::string times(const Explainer& e, const Estimate& estimate) {
  return seconds(estimate.token_seconds) + (e.metadata.task == "generate" ? " a token, " : " a pass, ") +
         tokens_rate(estimate.tokens_per_second) + " with " + demand_text(e);
}

std::string score(const Explainer& e, const Estimate& estimate) {
  switch (e.constraints.objective) {
    case Objective::Latency:
      return seconds(estimate.token_seconds) + (e.metadata.task == "generate" ? " a token" : " a pass");
    case Objective::Throughput:
      return tokens_rate(estimate.tokens_per_second) + " with " + demand_text(e);
    case Objective::Memory:
      return base::format_bytes(estimate.bytes) + " on the fullest device";
  }
  return "";
}

std::string device_size(const Explainer& e) {
  return base::format_bytes(e.hardware.device_memory) + " per device (" + e.hardware.memory_source + ")";
}

bool is_unsharded(const Sizes& sizes) { return sizes.tensor == 1 && sizes.pipeline == 1; }

/// Returns the best candidate that fits, other than the chosen one, and is no better than it.
const Candidate* runner_up(const Explainer& e, const std::vector<Candidate>& all, size_t chosen) {
  const Candidate* next = nullptr;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == chosen || !all[i].fits || all[i].impossible ||
        better(e.constraints.objective, all[i].layout->estimate, all[chosen].layout->estimate))
      continue;
    if (!next || better(e.constraints.objective, all[i].layout->estimate, next->layout->estimate)) next = &all[i];
  }
  return next;
}

/// Returns advice on replicas: one failed rank ends its whole replica with all data-parallel ranks, while replicas fail
/// independently.
std::string advice(const Explainer& e, const Sizes& sizes) {
  const int n = sizes.devices();
  if (sizes.data > 1) {
    return "; one dead rank ends all " + number(sizes.data) + " data-parallel ranks: replicas: " + number(sizes.data) +
           " with " + devices(n / sizes.data) + " each serve the same and end alone";
  }
  if (e.fewest > 0 && n >= 2 * e.fewest) {
    const int groups = n / e.fewest;
    return "; replicas: " + number(groups) + " with " + devices(e.fewest) +
           " each would serve more requests at once and end alone" +
           (n % e.fewest > 0 ? ", " + devices(n % e.fewest) + " idle" : "");
  }
  return "";
}

/// Returns what tensor-parallel ranks do not divide of a model with latent attention: its cache and the projections to
/// latents.
std::string latent_words(const Explainer& e, const Sizes& sizes) {
  int64_t token = 0, weights = 0;
  for (const StackMetadata& stack : e.metadata.stacks)
    token += cached_layers(stack, 0) * stack.latent * size_of(compute_type(e.metadata, e.demand.precision));
  if (sizes.tensor < 2 || token == 0) return "";
  for (const Part& part : e.metadata.parts)
    if (part.axis == Axis::Latent) weights += held_bytes(e.metadata, part, part.units, e.demand.precision) * part.count;
  const std::string cache =
      e.metadata.task == "generate" ? "the KV cache of " + base::format_bytes(token) + " a token and " : "";
  return "; latent attention: " + cache + base::format_bytes(weights) + " of weights are whole on each tensor rank" +
         (sizes.pipeline > 1 ? " of the stages together" : "");
}

std::string layer_words(const Explainer& e) {
  const int64_t layer = largest_layer(e.metadata, e.demand.precision);
  return layer > e.hardware.device_memory ? "; one layer alone is " + base::format_bytes(layer) +
                                                ", which stages cannot split and tensor parallelism can (Tensor)"
                                          : "";
}

}  // namespace

std::string Explainer::arithmetic(const Memory& memory) const {
  const std::string kv = memory.kv > 0 ? " + KV of one sequence of " + number(demand.sequence_length) + " tokens " +
                                             base::format_bytes(memory.kv)
                                       : "";
  return "weights " + base::format_bytes(memory.weights) + kv + " + activations " +
         base::format_bytes(memory.activations) + " + communicator " + base::format_bytes(memory.communicator) +
         " + runtime " + base::format_bytes(memory.runtime) + " = " + base::format_bytes(memory.total());
}

Rejected Explainer::rejected(const Candidate& one, const Candidate* chosen) const {
  if (one.impossible) return *one.impossible;
  const Layout& layout = *one.layout;
  const std::string limit = base::format_bytes(hardware.device_memory);
  if (!one.fits)
    return {one.name, name_of(Reason::DoesNotFit),
            arithmetic(layout.ranks[layout.fullest]) + ", more than " + limit + layer_words(*this), layout.estimate};
  const std::string numbers =
      times(*this, layout.estimate) + ", " + base::format_bytes(layout.need()) + " of " + limit + " per device";
  if (!chosen) return {one.name, name_of(Reason::NotChosen), numbers, layout.estimate};
  if (better(constraints.objective, layout.estimate, chosen->layout->estimate)) {
    return {one.name, name_of(Reason::HoldsTooFew),
            numbers + "; it holds " + number(layout.concurrency) + " of " + sequences(demand.concurrency) +
                " at once, less than a quarter",
            layout.estimate};
  }
  const Reason reason = constraints.objective == Objective::Latency      ? Reason::Slower
                        : constraints.objective == Objective::Throughput ? Reason::LowerThroughput
                                                                         : Reason::MoreMemory;
  return {one.name, name_of(reason), numbers, layout.estimate};
}

Reason Explainer::reason(const std::vector<Candidate>& all, const Choice& choice, bool fixed) const {
  const Candidate& chosen = all[choice.index];
  if (fixed) return Reason::UserFixed;
  if (chosen.layout->gathering) return Reason::NothingElseFits;
  if (chosen.sizes.devices() == 1) return Reason::FitsOneDevice;
  const auto fitting =
      std::count_if(all.begin(), all.end(), [](const Candidate& one) { return one.fits && !one.impossible; });
  if (fitting == 1) return Reason::OnlyOneThatFits;
  if (choice.for_room) return Reason::MostRoom;
  if (constraints.objective == Objective::Memory) return Reason::LeastMemory;
  if (is_unsharded(chosen.sizes) && constraints.objective == Objective::Latency) return Reason::NoGainFromPartitioning;
  return constraints.objective == Objective::Latency ? Reason::LowestLatency : Reason::HighestThroughput;
}

std::string Explainer::message(const std::vector<Candidate>& all, const Choice& choice, Reason reason) const {
  const Candidate& chosen = all[choice.index];
  const Layout& layout = *chosen.layout;
  const Candidate* next = runner_up(*this, all, choice.index);
  const std::string against = next ? " (next " + next->name + ": " + score(*this, next->layout->estimate) + ")" : "";
  std::string why = "as requested";
  if (reason == Reason::NothingElseFits) why = "no layout fits that keeps the weights on the devices";
  if (reason == Reason::FitsOneDevice) why = "one device holds it";
  if (reason == Reason::OnlyOneThatFits) why = "no other layout of the devices fits";
  if (reason == Reason::MostRoom)
    why = "the most room for sequences, for layouts that are better by " + std::string(name_of(constraints.objective)) +
          " hold less than a quarter of the " + sequences(demand.concurrency);
  if (reason == Reason::LeastMemory) why = "the least memory of the layouts that fit" + against;
  if (reason == Reason::LowestLatency) why = "the lowest latency of the layouts that fit" + against;
  if (reason == Reason::HighestThroughput) why = "the highest throughput of the layouts that fit" + against;
  if (reason == Reason::NoGainFromPartitioning) why = "partitioning it gains nothing" + against;
  Memory fullest = layout.ranks[layout.fullest];
  std::string text = chosen.name + " over " + devices(hardware.devices) + ": " + why + ", " +
                     times(*this, layout.estimate) + "; weights " + base::format_bytes(fullest.weights) + ", " +
                     base::format_bytes(fullest.total()) + (fullest.kv > 0 ? " with one sequence" : " in all") +
                     " of " + device_size(*this);
  text += layout.kv_blocks > 0 ? ", room for " + sequences(layout.concurrency) + " of "
                               : ", no KV cache; each input in one pass, up to ";
  text += number(demand.sequence_length) + " tokens";
  if (constraints.max_sequence_length > demand.sequence_length) {
    text += "; " + number(constraints.max_sequence_length) + " tokens were requested, the model has " +
            number(demand.sequence_length) + " positions";
  }
  if (fewest > 0) text += "; the fewest such devices that fit: " + number(fewest);
  if (layout.gathering)
    text +=
        "; weights are gathered in two buffers of " + base::format_bytes(layout.gathering->buffer) + ": " + chosen.note;
  else
    text += advice(*this, chosen.sizes) + latent_words(*this, chosen.sizes);
  if (!usable.empty()) text += "; " + usable;
  const bool files = layout.gathering && layout.gathering->from == Residency::File;
  const std::string guesses =
      assumed(demand.hardware_values, hardware.devices > 1, demand.devices_of_a_node < hardware.devices, files);
  return guesses.empty() ? text : text + "; assumed: " + guesses;
}

Refusal Explainer::does_not_fit(const std::vector<Candidate>& all) const {
  const Candidate* nearest = nullptr;
  for (const Candidate& one : all) {
    if (one.layout && !one.impossible && (!nearest || one.layout->need() < nearest->layout->need())) nearest = &one;
  }
  Refusal refusal{Reason::DoesNotFit, "", alternatives(*this, all, std::nullopt)};
  if (!nearest) {  // sizes that the model or the nodes do not allow
    refusal.reason = Reason::InvalidSizes;
    for (const Candidate& one : all) {
      if (one.impossible && one.impossible->reason != Reason::NotNeeded && refusal.message.empty())
        refusal.message = one.impossible->message;
    }
    return refusal;
  }
  const Layout& layout = *nearest->layout;
  refusal.message = nearest->name + " over " + devices(hardware.devices) + " needs on rank " +
                    number(static_cast<int64_t>(layout.fullest)) + ": " + arithmetic(layout.ranks[layout.fullest]) +
                    ", but there are " + device_size(*this) + "; the largest term is " +
                    largest_term(layout.ranks[layout.fullest]) + layer_words(*this) + ". " +
                    (!usable.empty() ? "No layout of " + devices(hardware.devices) + " fits, but " + usable + "."
                     : fewest > 0    ? "The fewest such devices that fit: " + number(fewest) + "."
                                     : "No number of such devices up to 64 fits; " + number(hardware.devices) +
                                        " would need " + base::format_bytes(layout.need()) + " each.");
  return refusal;
}

std::vector<Rejected> alternatives(const Explainer& explainer, const std::vector<Candidate>& all,
                                   std::optional<size_t> chosen) {
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); ++i) {
    if (chosen != i) order.push_back(i);
  }
  const auto rank = [&](size_t i) {
    const Candidate& one = all[i];
    if (one.impossible) return one.impossible->reason == Reason::NotNeeded ? 1 : 3;
    return one.fits ? 0 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return rank(a) == 0 && better(explainer.constraints.objective, all[a].layout->estimate, all[b].layout->estimate);
  });
  if (order.size() > max_rejected) order.resize(max_rejected);
  std::vector<Rejected> out;
  for (const size_t i : order) out.push_back(explainer.rejected(all[i], chosen ? &all[*chosen] : nullptr));
  return out;
}

}  // namespace pm
