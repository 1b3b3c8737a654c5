// SPDX-License-Identifier: Apache-2.0
// Speculative decoding: decides which sequences draft how many tokens, and keeps the drafts that the sampler chose.
#include <algorithm>

#include "worker/engine/scheduling/batcher_plan.h"

namespace pm::engine {

namespace {

/// Rows whose tokens a step may sample, if fewer sequences may run at once: each takes memory for the scores of the
/// whole vocabulary.
constexpr int64_t sampled_rows = 32;

}  // namespace

/// Sets what the sequences of a step may draft: rows of the token budget and of sampling, and KV blocks, which no
/// sequence needs for its next token. Drafts are shared evenly, and preempt nobody.
void Batcher::begin_drafts(Plan& plan, int64_t sequences) const {
  if (!drafter_ || sequences == 0) return;
  const int64_t in_step = (sequences + limits_.pipeline_batches - 1) / limits_.pipeline_batches;
  if (!draft_cost_.may_draft(in_step)) return;
  plan.drafts.rows = std::min(plan.token_budget, std::max(limits_.max_concurrency, sampled_rows)) - in_step;
  plan.drafts.most = std::max<int64_t>(1, plan.drafts.rows / in_step);
  plan.drafts.blocks = pool_.available() - sequences;
  plan.drafts.price = draft_cost_.price(in_step);
}

/// Returns drafts of the tokens behind the sequence's next one, for which it has KV blocks then. The first token of an
/// answer has none, because sequences fork with it; nor have beams, and sequences that are sampled together.
std::vector<int32_t> Batcher::draft(Plan& plan, const SequenceGroup& group, Sequence& sequence) {
  if (plan.drafts.rows <= 0 || group.search || group.is_weighted() || group.generated(sequence) < 1) return {};
  const SamplingParams& sampling = group.request.sampling;
  // the step makes one token more than it accepts drafts; a forced last token is not sampled
  int64_t most = std::min({limits_.speculation->tokens, plan.drafts.most, plan.drafts.rows,
                           sampling.max_new_tokens - group.generated(sequence) - (sampling.forced_eos >= 0 ? 2 : 1)});
  // behind its short factors the sequence is computed again
  if (limits_.short_rope_tokens > 0 && !group.long_rope)
    most = std::min(most, limits_.short_rope_tokens - sequence.length());
  most = sequence.draft_length.next(most, plan.drafts.price);
  if (most <= 0) return {};
  std::vector<int32_t> drafts = drafter_->propose(sequence.tokens, most);
  const auto space = [&] { return static_cast<int64_t>(sequence.blocks.size()) * block_tokens - sequence.length(); };
  while (space() < static_cast<int64_t>(drafts.size()) && plan.drafts.blocks > 0) {
    sequence.blocks.push_back(*pool_.allocate());
    --plan.drafts.blocks;
  }
  drafts.resize(static_cast<size_t>(std::min(static_cast<int64_t>(drafts.size()), space())));
  plan.drafts.rows -= static_cast<int64_t>(drafts.size());
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
  if (planned_prompt_tokens_ == 0 && !plan.planned.empty())
    draft_cost_.planned(static_cast<int64_t>(plan.planned.size()), drafts);
}

void Batcher::observe(const StepMessage& message, double seconds) {
  if (!drafter_ || message.forward) return;
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
