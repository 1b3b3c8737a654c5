// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: decides which sequences draft how many tokens, and keeps the drafts that the sampler chose.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "worker/engine/scheduling/batcher_plan.h"

namespace pm::engine {

namespace {

/// Rows whose tokens a step may sample, if fewer sequences may run at once: each takes memory for the scores of the
/// whole vocabulary.
constexpr int64_t sampled_rows = 32;
constexpr double newest_rate = 0.05;  // weight of a step's drafts in the rate of all sequences

/// What drafts of a sequence are expected to gain a step. Those that it tries without that hope lose next to nothing
/// where the step has drafts anyway.
double gain_of(const Sequence& sequence, int64_t drafts, const DraftPrice& price) {
  return std::max(0.0, draft_gain(sequence.draft_length.rate(), drafts, price.row));
}

}  // namespace

/// Returns how many tokens behind its next one the sequence may draft, whatever a step has room for. The first token of
/// an answer has no drafts, because sequences fork with it; nor have beams, and sequences that are sampled together.
int64_t Batcher::most_drafts(const SequenceGroup& group, const Sequence& sequence) const {
  if (group.search || group.is_weighted() || group.generated(sequence) < 1) return 0;
  const SamplingParams& sampling = group.request.sampling;
  // the step makes one token more than it accepts drafts; a forced last token is not sampled
  int64_t most = std::min(limits_.speculation->tokens,
                          sampling.max_new_tokens - group.generated(sequence) - (sampling.forced_eos >= 0 ? 2 : 1));
  // behind its short factors the sequence is computed again
  if (limits_.short_rope_tokens > 0 && !group.long_rope)
    most = std::min(most, limits_.short_rope_tokens - sequence.length());
  return most;
}

/// Returns how many drafts a step of so many sequences may have. Its rows are bounded by sampling, by the token budget,
/// and by a device that adds and rounds otherwise where there are many. Prompts are that many.
int64_t Batcher::draft_rows(const Plan& plan, int64_t sequences) const {
  const int64_t step_rows = limits_.speculation->step_rows;
  const auto is_prompt = [](const Sequence& sequence) { return sequence.uncomputed_tokens() > 1; };
  if (step_rows < plan.token_budget &&
      std::any_of(
          running_.begin(), running_.end(),
          [&](const auto& group) { return std::any_of(group->sequences.begin(), group->sequences.end(), is_prompt); }))
    return 0;
  return std::min({plan.token_budget, std::max(limits_.max_concurrency, sampled_rows), step_rows}) - sequences;
}

/// Allocates what the rows of drafts take beyond the blocks of the sequence, at most `spare_blocks`, and drops the
/// drafts for which there is none.
void Batcher::allocate_draft_blocks(Sequence& sequence, std::vector<int32_t>& drafts, int64_t& spare_blocks) {
  const auto space = [&] { return static_cast<int64_t>(sequence.blocks.size()) * block_tokens - sequence.length(); };
  for (; space() < static_cast<int64_t>(drafts.size()) && spare_blocks > 0; --spare_blocks)
    sequence.blocks.push_back(*pool_.allocate());
  drafts.resize(static_cast<size_t>(std::min(static_cast<int64_t>(drafts.size()), space())));
}

/// Returns the drafts of the sequences that take their next token in this step: as many as pay, in the rows that
/// draft_rows() has beside one for each of the `sequences` of a step, and in `spare_blocks` KV blocks, which no
/// sequence needs for its next token. Rows are shared evenly, and drafts preempt nobody. The step has drafts if all of
/// them together are expected to pay, or if it is a trial.
std::vector<std::vector<int32_t>> Batcher::draft(Plan& plan, std::span<const Turn> turns, int64_t sequences,
                                                 int64_t spare_blocks) {
  std::vector<std::vector<int32_t>> drafts(turns.size());
  if (!drafter_ || turns.empty() || !draft_cost_.may_draft(sequences)) return drafts;
  const DraftPrice price = draft_cost_.price(sequences);
  plan.row_price = price.row;
  // with a pipeline a step takes the sequences of a request together, though they are more than its share
  int64_t rows = draft_rows(plan, std::max(sequences, static_cast<int64_t>(turns.size())));
  const int64_t each = std::max<int64_t>(1, rows / sequences);
  double gain = -price.step;  // of the step, in tokens
  std::vector<DraftRequest> requests;
  std::vector<size_t> asking;  // which of the turns
  for (size_t i = 0; i < turns.size(); ++i) {
    const SequenceGroup& group = *turns[i].group;
    Sequence& sequence = *turns[i].sequence;
    if (group.generated(sequence) == 1) sequence.draft_length.begin(draft_rate_);
    const int64_t most = std::min({most_drafts(group, sequence), each, rows});
    if (most < 1 || !sequence.draft_length.may_draft()) continue;
    const int64_t count = best_draft_length(sequence.draft_length.rate(), most, price.row);
    gain += gain_of(sequence, count, price);
    rows -= count;
    asking.push_back(i);
    requests.push_back({.slot = sequence.slot,
                        .tokens = sequence.tokens,
                        .count = count,
                        .prompt = group.request.prompt.size(),
                        .sampling = &group.request.sampling,
                        .sequence = sequence.number});
  }
  const bool may_try = draft_trials_.next();
  if (requests.empty() || (gain <= 0 && !may_try)) return drafts;
  Drafts proposed = drafter_->propose(requests);
  plan.comparable = !proposed.read_texts;
  gain = -price.step;  // where there is no guess nothing is gained
  bool is_empty = true;
  for (size_t i = 0; i < asking.size(); ++i) {
    const std::vector<int32_t>& own = drafts[asking[i]] = std::move(proposed.tokens.at(i));
    is_empty = is_empty && own.empty();
    gain += gain_of(*turns[asking[i]].sequence, static_cast<int64_t>(own.size()), price);
  }
  if (is_empty) return drafts;
  if (gain > 0) {
    draft_trials_.paid();
  } else if (may_try) {
    draft_trials_.tried();
  } else {
    plan.comparable = false;  // a step without drafts, and with the drafter's time
    return std::vector<std::vector<int32_t>>(turns.size());
  }
  for (const size_t i : asking) allocate_draft_blocks(*turns[i].sequence, drafts[i], spare_blocks);
  return drafts;
}

void Batcher::note_drafts(const Plan& plan) {
  if (!drafter_) return;
  int64_t drafts = 0;
  for (const Planned& planned : plan.planned) {
    drafts += planned.drafts;
    statistics_.drafts += planned.drafts > 0;
  }
  statistics_.draft_tokens += drafts;
  if (planned_prompt_tokens_ == 0 && !plan.planned.empty() && plan.comparable)
    draft_cost_.planned(static_cast<int64_t>(plan.planned.size()), drafts);
}

void Batcher::observe(const StepMessage& message, double seconds) {
  if (!drafter_ || message.forward || planned_.empty() || !planned_.front().front().comparable) return;
  int64_t drafts = 0;
  for (const StepEntry& entry : message.entries) {
    if (entry.tokens.size() != static_cast<size_t>(1 + entry.drafts) || entry.encodes()) return;  // a prompt
    drafts += entry.drafts;
  }
  draft_cost_.observe(static_cast<int64_t>(message.entries.size()), drafts, seconds);
}

/// Appends the token of an entry. With drafts: those that the sampler has chosen, whose keys and values the step has
/// computed, and the token after them, of which it has not. What it computed of other drafts is overwritten later.
void Batcher::append_tokens(SequenceGroup& group, const Planned& planned, std::vector<Token> tokens, Time now,
                            Outbox& outbox) {
  const auto ended = [&] { return group.ended[static_cast<size_t>(planned.sequence)]; };
  for (size_t i = 0; i < tokens.size() && !ended(); ++i) {
    Sequence& sequence = *find_sequence(group, planned.sequence);
    if (i > 0) {
      ++sequence.computed;
      cache_full_blocks(group, sequence);
    }
    if (i < static_cast<size_t>(planned.drafts) && i + 1 < tokens.size()) ++statistics_.accepted_tokens;
    append_token(group, sequence, std::move(tokens[i]), now, outbox);
  }
  if (planned.drafts == 0 || ended()) return;
  Sequence& sequence = *find_sequence(group, planned.sequence);
  return_draft_blocks(sequence);
  statistics_.draft_pauses += sequence.draft_length.observe(planned.drafts, static_cast<int64_t>(tokens.size()) - 1,
                                                            limits_.speculation->tokens, planned.row_price);
  draft_rate_ += (sequence.draft_length.rate() - draft_rate_) * newest_rate;
}

/// Gives the KV blocks back that only rejected drafts needed, so that speculation delays no other request.
void Batcher::return_draft_blocks(Sequence& sequence) {
  const auto needed = static_cast<size_t>(blocks_for(sequence.length()));
  if (sequence.blocks.size() <= needed) return;
  pool_.release(std::span(sequence.blocks).subspan(needed));
  sequence.blocks.resize(needed);
  sequence.reset_table = true;  // the ranks append to their table
}

/// Returns whether the drafter reads the states of the group's tokens: sequences of it may draft.
bool Batcher::shows_states(const SequenceGroup& group) const {
  return drafter_ && limits_.speculation->reads_states && !group.search && !group.is_weighted();
}

/// Returns whether sequences that begin now, as many as run, would draft: what they cost under this load is less than
/// what others made of it.
bool Batcher::would_draft() const {
  int64_t sequences = 0;
  for (const auto& group : running_) sequences += static_cast<int64_t>(group->sequences.size());
  const DraftPrice price = draft_cost_.price(sequences);
  DraftLength one;
  one.begin(draft_rate_);
  const int64_t count = best_draft_length(one.rate(), limits_.speculation->tokens, price.row);
  return static_cast<double>(sequences) * draft_gain(one.rate(), count, price.row) > price.step;
}

/// Gives the drafter the states of a step whose tokens have been appended. Behind rejected drafts, and behind what ends
/// a sequence, rows belong to no token.
void Batcher::hand_on_states(const std::vector<Planned>& step, const at::Tensor& states) {
  int64_t wanted = 0;
  for (const Planned& planned : step) wanted += planned.states;
  if (const int64_t found = states.defined() ? states.size(0) : 0; found != wanted)
    throw std::logic_error("expected the states of " + std::to_string(wanted) + " tokens, found " +
                           std::to_string(found));
  const bool reads_prompts = would_draft();
  std::vector<TokenStates> all;
  for (int64_t row = 0; const Planned& planned : step) {
    const int64_t first = std::exchange(row, row + planned.states);
    if (planned.states == 0 || planned.group->retired || planned.group->done()) continue;
    const std::vector<Sequence>& sequences = planned.group->sequences;
    const auto sequence = std::find_if(sequences.begin(), sequences.end(), [&](const Sequence& one) {
      return one.slot >= 0 && one.slot == planned.slot && one.number == planned.sequence;
    });
    if (sequence == sequences.end()) continue;
    const int64_t rows = std::min(planned.states, sequence->length() - 1 - planned.first);
    if (rows <= 0) continue;
    all.push_back({.slot = planned.slot,
                   .tokens = sequence->tokens,
                   .prompt = reads_prompts ? planned.group->prompt_tokens() : 0,
                   .first = planned.first,
                   .rows = states.narrow(0, first, rows)});
  }
  if (!all.empty()) drafter_->observe(all);
  for (const auto& [parent, slot] : std::exchange(forked_slots_, {})) drafter_->fork(parent, slot);
}

}  // namespace pm::engine
