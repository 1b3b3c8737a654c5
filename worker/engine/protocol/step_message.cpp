// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/protocol/step_message.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "worker/engine/protocol/wire.h"

namespace pm::engine {

namespace {

template <typename Visit, typename DeviceSampling>
void visit_device_sampling(Visit& visit, DeviceSampling& d) {
  visit(d.params.temperature), visit(d.params.top_p), visit(d.params.min_p), visit(d.params.top_k),
      visit(d.params.seed), visit(d.params.sequence), visit(d.params.position), visit(d.params.sample),
      visit(d.num_samples);
  std::vector<int32_t> ids;
  std::vector<float> factors, subtrahends;
  for (const ops::ScoreEdit& edit : d.edits)
    ids.push_back(edit.id), factors.push_back(edit.factor), subtrahends.push_back(edit.subtrahend);
  visit(ids), visit(factors), visit(subtrahends);
  if constexpr (!std::is_const_v<DeviceSampling>) {
    if (factors.size() != ids.size() || subtrahends.size() != ids.size())
      throw std::invalid_argument("step message: score edits with fields of different lengths");
    for (size_t i = 0; i < ids.size(); ++i) d.edits.push_back({ids[i], factors[i], subtrahends[i]});
  }
}

/// Returns the number of drafts of an entry that was read. Throws std::invalid_argument for more than its tokens allow.
size_t checked_drafts(const StepEntry& entry) {
  if (entry.drafts < 0 || static_cast<size_t>(entry.drafts) >= std::max<size_t>(1, entry.tokens.size()))
    throw std::invalid_argument("step message: more drafts than tokens before the last one");
  return static_cast<size_t>(entry.drafts);
}

/// Throws std::invalid_argument unless the places of images are tokens of the entry, one after another, with rows, and
/// each token has positions along all axes or none has.
void check_images(const StepEntry& entry) {
  const std::vector<int32_t>& places = entry.image_places;
  const bool ascend = std::adjacent_find(places.begin(), places.end(), std::greater_equal<>()) == places.end(),
             inside = places.empty() || (places.front() >= 0 && std::cmp_less(places.back(), entry.tokens.size()));
  if (!ascend || !inside) throw std::invalid_argument("step message: places of images that are no tokens");
  if (places.empty() ? !entry.image_rows.empty()
                     : entry.image_rows.empty() || entry.image_rows.size() % places.size() != 0)
    throw std::invalid_argument("step message: rows of images that are not as many as their places");
  if (!entry.axes.empty() && entry.axes.size() != axes_of_token * entry.tokens.size())
    throw std::invalid_argument("step message: positions along axes that are not three for each token");
}

/// Throws std::invalid_argument unless the ranges of tokens that see each other stand one behind another before the
/// end of the entry.
void check_bidirectional(const StepEntry& entry) {
  int64_t end = 0;
  for (size_t i = 0; i + 1 < entry.bidirectional.size(); i += 2) {
    if (entry.bidirectional[i] < end || entry.bidirectional[i + 1] <= entry.bidirectional[i])
      throw std::invalid_argument("step message: ranges of tokens that overlap");
    end = entry.bidirectional[i + 1];
  }
  if (entry.bidirectional.size() % 2 != 0 || end > entry.context + static_cast<int64_t>(entry.tokens.size()))
    throw std::invalid_argument("step message: ranges of tokens that are not there");
}

/// Visits the fields of an entry in order, both for encoding and for decoding.
template <typename Visit, typename Entry>
void visit_entry(Visit& visit, Entry& e) {
  visit(e.slot), visit(e.reset_table), visit(e.context), visit(e.tokens), visit(e.long_rope), visit(e.prompt),
      visit(e.blocks), visit(e.source), visit(e.source_blocks), visit(e.source_tokens), visit(e.output_kind);
  visit(e.drafts);
  if (e.output_kind == OutputKind::Sampled) {
    visit_device_sampling(visit, e.device_sampling);
    if constexpr (!std::is_const_v<Entry>) e.draft_sampling.resize(checked_drafts(e));
    for (auto& one : e.draft_sampling) visit_device_sampling(visit, one);
  }
  visit(e.source_inputs), visit(e.scored), visit(e.scored_best), visit(e.adapter);
  visit(e.image_places), visit(e.image_rows), visit(e.position_shift), visit(e.axes), visit(e.bidirectional);
  visit(e.states);
}

template <typename Visit, typename Message>
void visit_head(Visit& visit, Message& m) {
  visit(m.step), visit(m.stop), visit(m.freed_slots), visit(m.block_copies), visit(m.state_copies), visit(m.bucket);
}

template <typename Visit, typename Job>
void visit_job(Visit& visit, Job& job) {
  visit(job.inputs), visit(job.hidden_states), visit(job.attentions), visit(job.outputs), visit(job.adapter);
}

}  // namespace

std::vector<uint8_t> encode(const StepMessage& message) {
  WireWriter write;
  visit_head(write, message);
  write(static_cast<uint32_t>(message.adapter_loads.size()));
  for (const AdapterLoad& load : message.adapter_loads) write(load.slot), write(load.factors);
  write(static_cast<uint32_t>(message.entries.size()));
  for (const StepEntry& entry : message.entries) visit_entry(write, entry);
  write(message.forward.has_value());
  if (message.forward) visit_job(write, *message.forward);
  return std::move(write.out);
}

StepMessage decode(std::span<const uint8_t> bytes) {
  WireReader read(bytes);
  StepMessage message;
  visit_head(read, message);
  message.adapter_loads.resize(read.count(sizeof(int32_t)));
  for (AdapterLoad& load : message.adapter_loads) read(load.slot), read(load.factors);
  message.entries.resize(read.count(sizeof(int32_t)));
  for (StepEntry& entry : message.entries) {
    visit_entry(read, entry);
    if (entry.output_kind > OutputKind::Logits) throw std::invalid_argument("step message: unknown output kind");
    if (entry.scored.size() > entry.tokens.size())
      throw std::invalid_argument("step message: more scored tokens than rows");
    check_images(entry);
    check_bidirectional(entry);
    if (checked_drafts(entry) > 0 && entry.output_kind == OutputKind::None)
      throw std::invalid_argument("step message: drafts without an output");
  }
  bool forward = false;
  read(forward);
  if (forward) visit_job(read, message.forward.emplace());
  if (!read.empty()) throw std::invalid_argument("step message: trailing bytes");
  return message;
}

}  // namespace pm::engine
