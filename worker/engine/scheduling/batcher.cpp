// SPDX-License-Identifier: Apache-2.0
// Admission, KV block allocation and the planning of steps. batcher_sampling.cpp says what its entries want,
// batcher_drafts.cpp drafts tokens, batcher_restarts.cpp takes blocks and slots back, batcher_results.cpp applies the
// results.
#include "worker/engine/scheduling/batcher.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/engine/scheduling/batcher_plan.h"
#include "worker/engine/scheduling/prompt_image_entries.h"

namespace pm::engine {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::InvalidRequest, message); }

std::string text(int64_t number) { return std::to_string(number); }

void check_parameters(const Request& request) {
  const SearchParams& search = request.search;
  if (request.prompt.empty() && request.source.empty() && request.sources.empty())
    refuse("the prompt has 0 tokens; at least 1 is required");
  if (request.max_new_tokens < 1)
    refuse("max_new_tokens is " + text(request.max_new_tokens) + "; at least 1 is required");
  if (search.num_beams < 1) refuse("num_beams is " + text(search.num_beams) + "; at least 1 is required");
  if (search.num_return_sequences < 1)
    refuse("num_return_sequences is " + text(search.num_return_sequences) + "; at least 1 is required");
  if (search.num_beams > 1 && search.num_return_sequences > search.num_beams) {
    refuse("num_return_sequences is " + text(search.num_return_sequences) + " but num_beams is " +
           text(search.num_beams) + "; num_return_sequences must not exceed num_beams");
  }
  if (search.num_beams > 1 && request.logprobs >= 0)
    refuse("logprobs cannot be combined with num_beams " + text(search.num_beams) +
           "; set num_beams to 1 or omit logprobs");
  if (search.num_beams > 1 && request.prompt_logprobs >= 0)
    refuse("prompt_logprobs cannot be combined with num_beams " + text(search.num_beams) +
           "; set num_beams to 1 or omit prompt_logprobs");
}

}  // namespace

Batcher::Batcher(const Limits& limits) : limits_(limits), pool_(limits.kv_blocks) {
  if (limits.speculation && !limits.recurrent && !limits.recomputes) drafter_ = limits.speculation->make_drafter();
  for (int64_t i = limits_.max_concurrency; i-- > 0;) free_slots_.push_back(static_cast<int32_t>(i));
}

std::unique_ptr<SequenceGroup> Batcher::make(Request request, std::function<void(const Event&)> on_event, Time now,
                                             int64_t source_tokens) const {
  check_parameters(request);
  if (limits_.source_inputs == request.source.empty())
    refuse(limits_.source_inputs ? "the request has no image or audio, which the encoder of this model reads"
                                 : "the request has inputs for an encoder of images or audio; this model has none");
  if (limits_.source_inputs && limits_.decoder_start < 0)
    refuse("config.json has no decoder_start_token_id; generating with an encoder-decoder needs one");
  const int64_t vocabulary =
      limits_.source_vocabulary > 0 && !limits_.source_inputs ? limits_.source_vocabulary : limits_.vocabulary;
  const auto check_ids = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids)
      if (id < 0 || id >= vocabulary)
        refuse("token id " + text(id) + " is outside the vocabulary of " + text(vocabulary) + " tokens");
  };
  check_ids(request.prompt);
  check_images(request, limits_.image_width);
  auto group = std::make_unique<SequenceGroup>();
  const auto add_tokens = [&](std::vector<int32_t> tokens) {
    const auto states = static_cast<int64_t>(tokens.size());
    group->sources.push_back({.tokens = std::move(tokens), .inputs = {}, .states = states, .blocks = {}});
  };
  if (limits_.source_inputs) {
    group->sources.push_back(
        {.tokens = {}, .inputs = std::move(request.source), .states = source_tokens, .blocks = {}});
    if (!request.has_start) request.prompt.insert(request.prompt.begin(), limits_.decoder_start);
    if (request.prompt.empty()) refuse("the decoder's sequence begins with 0 tokens; at least 1 is required");
  } else if (!request.sources.empty()) {
    if (limits_.decoder_start < 0 || !request.prompt.empty())
      refuse(
          "the request has several inputs of an encoder beside a prompt, or the model has no decoder_start_token_id");
    for (WeightedSource& source : request.sources) {
      if (source.tokens.empty()) refuse("an input of the encoder has 0 tokens; at least 1 is required");
      check_ids(source.tokens);
      group->log_weights.push_back(source.log_weight);
      add_tokens(std::move(source.tokens));
    }
    request.prompt = {limits_.decoder_start};
  } else if (limits_.decoder_start >= 0) {
    add_tokens(std::move(request.prompt));
    request.prompt = {limits_.decoder_start};
  }
  if ((request.adapter || request.prompt_logprobs >= 0) && (group->has_source() || limits_.recomputes))
    refuse(std::string(request.adapter ? "adapters" : "log-probabilities of the prompt") +
           " are not available: this model " +
           (group->has_source() ? "reads the prompt by an encoder"
                                : "computes each sequence from its beginning for every token"));
  SamplingParams& sampling = request.sampling;
  sampling.eos.clear();
  if (!request.ignore_eos) sampling.eos.assign(request.eos.begin(), request.eos.end());
  for (auto [name, id, model_default] : {std::tuple{"forced_bos_token_id", &sampling.forced_bos, limits_.forced_bos},
                                         {"forced_eos_token_id", &sampling.forced_eos, limits_.forced_eos}}) {
    if (*id < 0) *id = model_default;
    if (*id >= limits_.vocabulary)
      refuse(std::string(name) + " is " + text(*id) + ", which is outside the vocabulary of " +
             text(limits_.vocabulary) + " tokens");
  }
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id >= limits_.vocabulary)
      refuse("logit_bias has token id " + text(id) + ", which is outside the vocabulary of " +
             text(limits_.vocabulary) + " tokens");
  }
  if (request.constraint) {
    if (sampling.forced_bos >= 0)
      refuse("a constraint cannot be combined with forced_bos_token_id " + text(sampling.forced_bos) +
             ", which this model or the request sets");
    if (request.search.num_beams > 1 && sampling.eos.empty())
      refuse("a constraint with num_beams " + text(request.search.num_beams) +
             " needs an end token, because its answers end with one; set eos_token_id, or num_beams to 1");
    sampling.forced_eos = -1;  // a token that the constraint may not allow; the answer ends at its length
    group->constraints.push_back(request.constraint->fork());
  }
  sampling.max_new_tokens = request.max_new_tokens;
  if (request.search.num_beams > 1) group->search.emplace(request.search, sampling.eos, request.max_new_tokens);
  for (int64_t source = 0; source < group->copies(); ++source) {
    group->sequences.emplace_back().tokens = request.prompt;
    group->sequences.back().source = source;
  }
  group->ended.resize(static_cast<size_t>(request.search.num_return_sequences));
  group->request = std::move(request);
  group->on_event = std::make_shared<const std::function<void(const Event&)>>(std::move(on_event));
  group->submitted = now;
  check_limits(*group);
  return group;
}

void Batcher::check_limits(const SequenceGroup& group) const {
  int64_t read = 0;  // by the longest source
  for (const EncoderSource& source : group.sources) read = std::max(read, source.states);
  const int64_t tokens = group.prompt_tokens() + group.request.max_new_tokens;
  const auto too_long = [&](const std::string& what, int64_t max_tokens) {
    refuse(what + " exceeds the maximum of " + text(max_tokens) + " tokens per sequence");
  };
  const int64_t max_tokens =
      limits_.recomputes ? limits_.positions : std::min(limits_.positions, limits_.kv_blocks * block_tokens);
  const int64_t source_positions = limits_.source_positions > 0 ? limits_.source_positions : limits_.positions;
  if (read > source_positions) too_long("the input of " + text(read) + " tokens", source_positions);
  if (tokens > max_tokens)
    too_long("the prompt of " + text(group.prompt_tokens()) + " tokens plus max_new_tokens " +
                 text(group.request.max_new_tokens),
             max_tokens);
  if (group.max_sequences() > limits_.max_concurrency) {
    refuse("the request needs " + text(group.max_sequences()) + " concurrent sequences; the maximum is " +
           text(limits_.max_concurrency));
  }
  if (limits_.recomputes) return;
  int64_t blocks = 0;
  for (int64_t i = 0; i < group.copies(); ++i)
    blocks += max_blocks(group.prompt_tokens(), group.request.max_new_tokens,
                         group.has_source() ? group.sources[static_cast<size_t>(i)].states : 0, group.max_width());
  if (blocks > limits_.kv_blocks) {
    refuse("the input of " + text(read > 0 ? read : group.prompt_tokens()) + " tokens and " +
           text(group.max_sequences()) + " sequence(s) of max_new_tokens " + text(group.request.max_new_tokens) +
           " need " + text(blocks) + " KV blocks of " + text(block_tokens) + " tokens; " + text(limits_.kv_blocks) +
           " are available");
  }
}

int64_t Batcher::running() const { return static_cast<int64_t>(running_.size()); }

/// Admits waiting requests in order of arrival while slots and blocks for their current tokens are available.
void Batcher::admit(Time now, Outbox& outbox) {
  std::erase_if(waiting_, [&](const std::unique_ptr<SequenceGroup>& group) {
    if (group->cached_tokens >= 0 || !timed_out(*group, now))
      return false;  // a request that has run before ends with its next token and keeps its answer
    end_all(*group, Finish::Length, {}, outbox);
    ++statistics_.finished;
    return true;
  });
  while (!waiting_.empty() && admit(*waiting_.front(), now)) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool Batcher::admit(SequenceGroup& group, Time now) {
  if (static_cast<int64_t>(free_slots_.size()) < group.max_sequences() || !allocate_blocks(group)) return false;
  for (int64_t i = 0; i < group.max_sequences(); ++i) {
    group.spare_slots.push_back(free_slots_.back());
    free_slots_.pop_back();
  }
  for (Sequence& sequence : group.sequences) {
    sequence.slot = group.spare_slots.back();
    group.spare_slots.pop_back();
  }
  if (group.cached_tokens >= 0) return true;  // readmitted after a preemption
  group.admitted = now;
  group.cached_tokens = group.sequences[0].computed;
  if (group.has_source() || limits_.recomputes) return true;
  statistics_.prefix_tokens += group.prompt_tokens();
  statistics_.prefix_hit_tokens += group.cached_tokens;
  return true;
}

/// Allocates blocks for all tokens of the sequences. Further sequences share the whole prompt blocks of the first one.
/// One spare block per running sequence stays free; otherwise the next step would preempt this request.
bool Batcher::allocate_blocks(SequenceGroup& group) {
  if (limits_.recomputes) return true;
  Sequence& first = group.sequences.front();
  const int64_t most = limits_.short_rope_tokens;
  group.long_rope = most > 0 && std::all_of(group.sequences.begin(), group.sequences.end(),
                                            [&](const Sequence& sequence) { return sequence.length() > most; });
  const int64_t adapter = group.request.adapter ? group.request.adapter->id : 0;
  const BlockPool::PrefixNode root = BlockPool::root(adapter, group.long_rope);
  BlockPool::Prefix prefix{.blocks = {}, .end = root};
  if (!group.has_source() && !limits_.recurrent && !group.scores_prompt())
    prefix = pool_.find_prefix(prefix_ids(group, first, 0, first.length()), root);
  const bool shares = group.sequences.size() > 1 && !group.is_weighted() && !limits_.recurrent;
  const int64_t common = shares ? group.prompt_tokens() / block_tokens : 0,
                cached = static_cast<int64_t>(prefix.blocks.size());
  int64_t need = blocks_for(first.length()) - cached, spare = 0;
  for (const EncoderSource& source : group.sources) need += blocks_for(source.states);
  for (size_t i = 1; i < group.sequences.size(); ++i) need += blocks_for(group.sequences[i].length()) - common;
  for (const auto& other : running_) spare += static_cast<int64_t>(other->sequences.size());
  if (need + spare > pool_.available()) {
    pool_.release(prefix.blocks);
    return false;
  }
  const auto extend = [&](std::vector<int32_t>& table, int64_t tokens) {
    while (static_cast<int64_t>(table.size()) < blocks_for(tokens)) table.push_back(*pool_.allocate());
  };
  first.blocks = std::move(prefix.blocks);
  first.cached_blocks = cached;
  first.prefix_node = prefix.end;
  first.computed = cached * block_tokens;
  extend(first.blocks, first.length());
  for (size_t i = 1; i < group.sequences.size(); ++i) {
    Sequence& sequence = group.sequences[i];
    sequence.prefix_node = root;
    sequence.blocks.assign(first.blocks.begin(), first.blocks.begin() + common);
    for (int32_t block : sequence.blocks) pool_.retain(block);
    sequence.computed = sequence.shared_tokens = common * block_tokens;
    extend(sequence.blocks, sequence.length());
  }
  for (EncoderSource& source : group.sources) extend(source.blocks, source.states);
  return true;
}

StepMessage Batcher::plan(Time now, std::vector<SamplingInput>& sampling_inputs, Outbox& outbox) {
  restart_outgrown();
  admit(now, outbox);
  planned_prompt_tokens_ = 0;
  Plan plan{{}, {}, sampling_inputs, limits_.step_tokens};
  if (limits_.recomputes) {
    plan_whole_sequences(plan);
  } else {
    plan_next_tokens(plan);
    plan_prompts(plan);
    note_drafts(plan);
  }
  plan.message.freed_slots = take_freed_slots();
  if (!plan.planned.empty()) plan.message.state_copies = std::exchange(state_copies_, {});
  if (!plan.planned.empty()) planned_.push_back(std::move(plan.planned));
  return std::move(plan.message);
}

/// Adds one row for each decoding sequence. With a pipeline, each message takes its share of the sequences, so that
/// every stage has a batch.
void Batcher::plan_next_tokens(Plan& plan) {
  int64_t all = 0, taken = 0;
  for (const auto& group : running_) all += static_cast<int64_t>(group->sequences.size());
  const int64_t spare_blocks = pool_.available() - all;
  std::vector<Turn> turns;
  for (size_t i = 0; i < running_.size() && taken * limits_.pipeline_batches < all; ++i) {
    SequenceGroup& group = *running_[i];
    const auto rows =
        static_cast<int64_t>(std::count_if(group.sequences.begin(), group.sequences.end(),
                                           [&](const Sequence& sequence) { return takes_token(group, sequence); }));
    if (rows == 0 || taken + rows > plan.token_budget || ((group.search || group.is_weighted()) && !group.all_ready()))
      continue;
    if (allocate_next_blocks(group, plan.message.block_copies) != Allocation::Done)
      break;  // either this request, the last one, was preempted, or blocks become free when a step completes
    taken += rows;
    for (Sequence& sequence : group.sequences)
      if (takes_token(group, sequence)) turns.push_back({&group, &sequence});
  }
  std::vector<std::vector<int32_t>> drafts =
      draft(plan, turns, (all + limits_.pipeline_batches - 1) / limits_.pipeline_batches, spare_blocks);
  for (size_t i = 0; i < turns.size(); ++i) add(plan, *turns[i].group, *turns[i].sequence, 1, std::move(drafts[i]));
}

/// Adds whole sequences that want a token, in order of admission, up to the token budget; a longer one runs alone. With
/// a pipeline, each message takes its share of the sequences. Beams may be spread over several steps.
void Batcher::plan_whole_sequences(Plan& plan) {
  int64_t all = 0, taken = 0;
  for (const auto& group : running_) all += static_cast<int64_t>(group->sequences.size());
  for (const auto& group : running_) {
    for (Sequence& sequence : group->sequences) {
      const int64_t tokens = sequence.uncomputed_tokens(), rows = whole_rows(*group, sequence) + limits_.memory;
      if (tokens == 0) continue;  // its token is under way
      if (taken > 0 && (rows > plan.token_budget || taken * limits_.pipeline_batches >= all)) return;
      if (sequence.computed == 0) planned_prompt_tokens_ += sequence.length();
      add(plan, *group, sequence, tokens);
      ++taken;
    }
  }
}

/// Allocates a block for the next token of each ready sequence. If no block is available, the request that was admitted
/// last is preempted. If that is this request, all its blocks are released. If it has entries in flight, the allocation
/// waits for them.
Batcher::Allocation Batcher::allocate_next_blocks(SequenceGroup& group, std::vector<int32_t>& copies) {
  const size_t before = copies.size();
  for (Sequence& sequence : group.sequences) {
    if (!takes_token(group, sequence)) continue;
    const auto index = static_cast<size_t>(sequence.computed / block_tokens);
    const bool grows = index == sequence.blocks.size();
    if (!grows && !pool_.shared(sequence.blocks[index])) continue;
    std::optional<int32_t> block;
    while (!(block = pool_.allocate())) {
      if (running_.back()->in_flight > 0) return Allocation::Later;
      const bool own = running_.back().get() == &group;
      preempt_last();
      if (!own) continue;
      copies.resize(before);
      return Allocation::Preempted;
    }
    if (grows) {
      sequence.blocks.push_back(*block);
      continue;
    }
    copies.insert(copies.end(), {sequence.blocks[index], *block});
    pool_.release(sequence.blocks[index]);
    sequence.blocks[index] = *block;
    sequence.reset_table = true;
  }
  return Allocation::Done;
}

void Batcher::plan_prompts(Plan& plan) {
  for (auto& group : running_) {
    for (Sequence& sequence : group->sequences) {
      const EncoderSource* unread =
          group->has_source() ? &group->sources[static_cast<size_t>(sequence.source)] : nullptr;
      if (unread && unread->encoded) unread = nullptr;
      if (plan.token_budget <= 0) return;
      if (group->ready(sequence) || sequence.shared_tokens > group->sequences.front().computed) continue;
      // all beams are sampled together, in a step in which each has one uncomputed token; so are the sequences of
      // weighted sources, whose encoder may run in several steps
      const bool together = (group->search && group->width() > 1) || group->is_weighted();
      const int64_t wanted = has_outgrown(*group, sequence) ? limits_.short_rope_tokens
                                                            : sequence.length() - (together ? 1 : 0),
                    remaining = wanted - sequence.computed;
      // the encoder's input is never split: if it exceeds the budget, it runs with decode tokens only
      const int64_t source = unread ? unread->states : 0;
      if (source > 0 && source >= plan.token_budget && planned_prompt_tokens_ > 0) return;
      int64_t count = std::min(std::max<int64_t>(1, plan.token_budget - source), remaining);
      if (limits_.bidirectional_images) count = without_parts_of_images(group->request, sequence.computed, count);
      if (count > 0)
        add(plan, *group, sequence, count);
      else if (unread && group->is_weighted())
        add_source(plan, *group, sequence);
      else
        continue;
      plan.token_budget -= source;
      planned_prompt_tokens_ += source + count;
    }
  }
}

/// Runs the encoder for a sequence whose only token is sampled in a later step, beside those of the other sources. That
/// step computes the token again, so that its keys and values may be written twice.
void Batcher::add_source(Plan& plan, SequenceGroup& group, Sequence& sequence) {
  StepEntry entry = make_entry(group, sequence, 1);
  plan.token_budget -= 1;
  ++group.in_flight;
  plan.planned.push_back({.group = &group, .sequence = sequence.number, .tokens = 0});
  plan.message.entries.push_back(std::move(entry));
}

/// Returns the entry of a sequence's next tokens, and counts what the ranks know after it.
StepEntry Batcher::make_entry(SequenceGroup& group, Sequence& sequence, int64_t tokens) const {
  EncoderSource* source = group.has_source() ? &group.sources[static_cast<size_t>(sequence.source)] : nullptr;
  StepEntry entry{.slot = sequence.slot};
  entry.adapter = group.request.adapter ? group.request.adapter->slot : 0;
  entry.context = sequence.computed;
  entry.long_rope = group.long_rope && sequence.computed < limits_.short_rope_tokens;
  const auto from = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.computed);
  entry.tokens.assign(from, from + static_cast<std::ptrdiff_t>(tokens));
  add_images(group.request, sequence.computed, tokens, limits_, entry);
  if (sequence.reset_table) {
    entry.reset_table = true;
    if (source) entry.source_blocks = source->blocks, entry.source_tokens = source->states;
    sequence.reset_table = false;
    sequence.sent_blocks = 0;
  }
  if (source && !source->encoded) {
    entry.source = source->tokens;
    entry.source_inputs = source->inputs;
    source->encoded = true;
  }
  entry.blocks.assign(sequence.blocks.begin() + static_cast<std::ptrdiff_t>(sequence.sent_blocks),
                      sequence.blocks.end());
  sequence.sent_blocks = static_cast<int64_t>(sequence.blocks.size());
  return entry;
}

/// Returns the rows of the entry of a sequence that is computed from its beginning.
int64_t Batcher::whole_rows(const SequenceGroup& group, const Sequence& sequence) const {
  return sequence.length() + (limits_.overlap ? group.generated(sequence) : 0) + (limits_.appended ? 1 : 0);
}

/// Returns that entry.
StepEntry Batcher::make_whole_entry(const SequenceGroup& group, Sequence& sequence) const {
  StepEntry entry{.slot = sequence.slot, .reset_table = std::exchange(sequence.reset_table, false)};
  const size_t prompt = group.request.prompt.size();
  entry.prompt = static_cast<int64_t>(prompt);
  entry.long_rope = limits_.short_rope_tokens > 0 && sequence.length() > limits_.short_rope_tokens;
  entry.tokens.reserve(static_cast<size_t>(whole_rows(group, sequence)));
  for (size_t i = 0; i < sequence.tokens.size(); ++i) {
    if (limits_.overlap && i >= prompt) entry.tokens.push_back(sequence.tokens[i - 1]);
    entry.tokens.push_back(sequence.tokens[i]);
  }
  if (limits_.appended) entry.tokens.push_back(*limits_.appended);
  return entry;
}

void Batcher::add(Plan& plan, SequenceGroup& group, Sequence& sequence, int64_t tokens, std::vector<int32_t> drafts) {
  StepEntry entry = limits_.recomputes ? make_whole_entry(group, sequence) : make_entry(group, sequence, tokens);
  entry.tokens.insert(entry.tokens.end(), drafts.begin(), drafts.end());
  entry.drafts = static_cast<int32_t>(drafts.size());
  plan.token_budget -= static_cast<int64_t>(entry.tokens.size()) + limits_.memory;
  entry.states = shows_states(group);
  Planned planned{.group = &group,
                  .sequence = sequence.number,
                  .tokens = tokens,
                  .drafts = entry.drafts,
                  .row_price = plan.row_price,
                  .slot = sequence.slot,
                  .first = entry.context,
                  .states = entry.states ? static_cast<int64_t>(entry.tokens.size()) : 0,
                  .comparable = plan.comparable};
  if (sequence.computed + tokens == sequence.length()) add_sampling(plan, group, sequence, entry, planned);
  add_prompt_scores(group, sequence, entry, planned);
  sequence.computed += tokens;
  cache_full_blocks(group, sequence);
  ++group.in_flight;
  plan.planned.push_back(planned);
  plan.message.entries.push_back(std::move(entry));
}

}  // namespace pm::engine
