// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: decides which sequences draft how many tokens, and keeps the drafts that the sampler chose.
#include <algorithm>

#include "worker/engine/scheduling/batcher_plan.h"

namespace pm::engine {

namespace {

/// Rows whose tokens a step may sample, if fewer sequences may run at once: each takes memory for the scores of the
/// whole vocabulary.
constexpr int64_t sampled_rows = 32;
constexpr double newest_rate = 0.05;  // weight of a step's drafts in the rate of all sequences

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

/// Allocates what the rows of drafts take beyond the blocks of the sequence, at most `spare_blocks`, and drops the
/// drafts for which there is none.
void Batcher::allocate_draft_blocks(Sequence& sequence, std::vector<int32_t>& drafts, int64_t& spare_blocks) {
  const auto space = [&] { return static_cast<int64_t>(sequence.blocks.size()) * block_tokens - sequence.length(); };
  for (; space() < static_cast<int64_t>(drafts.size()) && spare_blocks > 0; --spare_blocks)
    sequence.blocks.push_back(*pool_.allocate());
  drafts.resize(static_cast<size_t>(std::min(static_cast<int64_t>(drafts.size()), space())));
}

/// Returns the drafts of the sequences that take their next token in this step: as many as pay, in rows that the token
/// budget and sampling leave beside one for each of the `sequences` of a step, and in `spare_blocks` KV blocks, which
/// no sequence needs for its next token. Rows are shared evenly, and drafts preempt nobody.
std::vector<std::vector<int32_t>> Batcher::draft(Plan& plan, std::span<const Turn> turns, int64_t sequences,
                                                 int64_t spare_blocks) {
  std::vector<std::vector<int32_t>> drafts(turns.size());
  if (!drafter_ || turns.empty() || !draft_cost_.may_draft(sequences)) return drafts;
  plan.draft_price = draft_cost_.price(sequences);
  int64_t rows = std::min(plan.token_budget, std::max(limits_.max_concurrency, sampled_rows)) - sequences;
  const int64_t each = std::max<int64_t>(1, rows / sequences);
  std::vector<DraftRequest> requests;
  std::vector<size_t> asking;  // which of the turns
  for (size_t i = 0; i < turns.size(); ++i) {
    const SequenceGroup& group = *turns[i].group;
    Sequence& sequence = *turns[i].sequence;
    if (group.generated(sequence) == 1) sequence.draft_length.begin(draft_rate_);
    const int64_t count =
        sequence.draft_length.next(std::min({most_drafts(group, sequence), each, rows}), plan.draft_price);
    if (count <= 0) continue;
    rows -= count;
    asking.push_back(i);
    requests.push_back({.slot = sequence.slot,
                        .tokens = sequence.tokens,
                        .count = count,
                        .prompt = group.request.prompt.size(),
                        .sampling = &group.request.sampling,
                        .sequence = sequence.number});
  }
  if (requests.empty()) return drafts;
  Drafts proposed = drafter_->propose(requests);
  plan.comparable = !proposed.read_texts;
  for (size_t i = 0; i < asking.size(); ++i) {
    std::vector<int32_t>& own = drafts[asking[i]] = std::move(proposed.tokens.at(i));
    allocate_draft_blocks(*turns[asking[i]].sequence, own, spare_blocks);
  }
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
  int64_t drafting = 0, drafts = 0;
  for (const StepEntry& entry : message.entries) {
    if (entry.tokens.size() != static_cast<size_t>(1 + entry.drafts) || entry.encodes()) return;  // a prompt
    drafting += entry.drafts > 0;
    drafts += entry.drafts;
  }
  draft_cost_.observe(static_cast<int64_t>(message.entries.size()), drafting, drafts, seconds);
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
                                                            limits_.speculation->tokens, planned.price);
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

}  // namespace pm::engine
