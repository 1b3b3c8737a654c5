// SPDX-License-Identifier: Apache-2.0
// Applies the tokens that a step returned: forks, beam search, events and the end of requests.
#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "worker/engine/scheduling/batcher.h"

namespace pm::engine {

void Batcher::apply(const std::vector<SamplerOutput>& sampled, Time now, Outbox& outbox,
                    std::vector<PromptToken> prompt_tokens, const at::Tensor& states) {
  if (planned_.empty()) throw std::logic_error("results arrived for a step that was not planned");
  const std::vector<Planned> step = std::move(planned_.front());
  planned_.pop_front();
  size_t next = 0, wanted = 0;
  for (const Planned& planned : step) wanted += planned.scored;
  if (prompt_tokens.size() != wanted)
    throw std::logic_error("expected " + std::to_string(wanted) + " scored tokens of prompts, found " +
                           std::to_string(prompt_tokens.size()));
  auto scored = prompt_tokens.begin();
  for (size_t i = 0; i < step.size(); ++i) {
    const Planned& planned = step[i];
    SequenceGroup& group = *planned.group;
    --group.in_flight;
    const auto own = scored;
    scored += static_cast<std::ptrdiff_t>(planned.scored);
    if (!group.retired)
      group.scored_prompt.insert(group.scored_prompt.end(), std::move_iterator(own), std::move_iterator(scored));
    if (group.retired || group.done() || !planned.samples) {
      next += planned.samples && !planned.forced;
      continue;
    }
    Sequence* sequence = find_sequence(group, planned.sequence);
    if (planned.forced) {
      if (group.width() == 1 && group.generated(*sequence) == 0)
        fork(group, std::vector<Token>(group.ended.size(), Token{planned.token, 0, {}}), now, outbox);
      else
        append_token(group, *sequence, {planned.token, 0, {}}, now, outbox);
      continue;
    }
    const SamplerOutput& result = sampled.at(next++);
    if (!result.error.empty()) {
      fail_constraint(group, result.error, outbox);
    } else if (group.search) {
      // the beam search ranks the candidates of all beams, whose other rows follow, here or in a later step
      group.candidates.insert(group.candidates.end(), result.candidates.begin(), result.candidates.end());
      if (++group.ranked < group.width()) continue;
      group.ranked = 0;
      advance(group, std::exchange(group.candidates, {}), now, outbox);
    } else if (group.width() == 1 && group.generated(*sequence) == 0) {
      std::vector<Token> tokens = result.tokens;
      tokens.resize(group.ended.size(), tokens.front());  // the argmax is the same for every sequence
      fork(group, tokens, now, outbox);
    } else {
      append_tokens(group, planned, result.tokens, now, outbox);
    }
  }
  hand_on_states(step, states);
  std::erase_if(running_, [&](std::unique_ptr<SequenceGroup>& group) {
    if (!group->done()) return false;
    retire(std::move(group));
    ++statistics_.finished;
    return true;
  });
  std::erase_if(retired_, [](const std::unique_ptr<SequenceGroup>& group) { return group->in_flight == 0; });
}

Sequence* Batcher::find_sequence(SequenceGroup& group, int64_t number) {
  const auto found = std::find_if(group.sequences.begin(), group.sequences.end(),
                                  [&](const Sequence& sequence) { return sequence.number == number; });
  if (found == group.sequences.end())
    throw std::logic_error("request " + group.request.id + " has no sequence " + std::to_string(number));
  return &*found;
}

/// Enters the blocks that are full now into the prefix cache.
void Batcher::cache_full_blocks(const SequenceGroup& group, Sequence& sequence) {
  if (limits_.recomputes || limits_.recurrent) return;
  if (group.has_source()) return;  // keys and values also depend on the encoder's input
  for (; (sequence.cached_blocks + 1) * block_tokens <= sequence.computed; ++sequence.cached_blocks) {
    sequence.prefix_node =
        pool_.cache_block(sequence.blocks[static_cast<size_t>(sequence.cached_blocks)], sequence.prefix_node,
                          prefix_ids(group, sequence, sequence.cached_blocks * block_tokens, block_tokens));
  }
}

/// Returns what stands for `count` tokens from `first` on where prefixes are compared: their ids, and the key of the
/// image for each of its tokens.
std::vector<int32_t> Batcher::prefix_ids(const SequenceGroup& group, const Sequence& sequence, int64_t first,
                                         int64_t count) {
  const auto from = sequence.tokens.begin() + first;
  std::vector<int32_t> ids(from, from + count);
  for (const PromptImage& image : group.request.images) {
    const int64_t begin = std::max(first, image.first), end = std::min(first + count, image.first + image.tokens);
    for (int64_t place = begin; place < end; ++place) ids[static_cast<size_t>(place - first)] = image.key;
  }
  return ids;
}

/// Appends the first token of each sequence. The sequences share the blocks of the prompt; each has its own slot.
void Batcher::fork(SequenceGroup& group, const std::vector<Token>& tokens, Time now, Outbox& outbox) {
  const std::vector<Sequence> first = group.sequences;
  for (size_t i = 1; i < tokens.size(); ++i) {
    for (Sequence sequence : first) {
      sequence.number = static_cast<int64_t>(i);
      give_slot(group, sequence, sequence.slot);
      for (int32_t block : sequence.blocks) pool_.retain(block);
      group.sequences.push_back(std::move(sequence));
    }
  }
  if (!fork_constraints(group, outbox)) return;
  for (size_t i = 0; i < tokens.size() && !group.done(); ++i)
    append_token(group, *find_sequence(group, static_cast<int64_t>(i)), tokens[i], now, outbox);
}

/// Gives a sequence that has forked a slot of its own, with the state of its parent's.
void Batcher::give_slot(SequenceGroup& group, Sequence& sequence, int32_t parent) {
  sequence.slot = group.spare_slots.back();
  group.spare_slots.pop_back();
  sequence.reset_table = true;
  sequence.sent_blocks = 0;
  if (drafter_) forked_slots_.emplace_back(parent, sequence.slot);
  if (limits_.recurrent) state_copies_.insert(state_copies_.end(), {parent, sequence.slot});
}

/// Gives every sequence a constraint of its own. Returns false if the request has failed with it.
bool Batcher::fork_constraints(SequenceGroup& group, Outbox& outbox) {
  if (group.constraints.empty()) return true;
  try {
    while (group.constraints.size() < group.ended.size())
      group.constraints.push_back(group.constraints.front()->fork());
    return true;
  } catch (const std::exception& error) {
    fail_constraint(group, error.what(), outbox);
    return false;
  }
}

/// Appends a token to the constraint of a sequence. Returns whether the sequence ends with it; nothing if the request
/// has failed, because the token is not allowed: an answer is never passed on as if it followed its constraint.
std::optional<bool> Batcher::append_to_constraint(SequenceGroup& group, int64_t number, int32_t id, bool is_end,
                                                  Outbox& outbox) {
  TokenConstraint& constraint = *group.constraints.at(static_cast<size_t>(number));
  try {
    if (!is_end) return constraint.append(id);
    // The constraint has computed no mask for a row behind an accepted draft.
    if (constraint.may_end() || constraint.next().may_end) return true;
    fail_constraint(group, "the end token " + std::to_string(id) + " came before the answer was complete", outbox);
  } catch (const std::exception& error) {
    fail_constraint(group, "token " + std::to_string(id) + ": " + error.what(), outbox);
  }
  return std::nullopt;
}

void Batcher::fail_constraint(SequenceGroup& group, const std::string& reason, Outbox& outbox) {
  for (size_t i = 0; i < group.ended.size(); ++i) {
    if (group.ended[i]) continue;
    Event event{.sequence = static_cast<int64_t>(i), .tokens = {}, .finish = Finish::Failed, .reason = reason};
    event.constraint_failed = true;
    emit(group, std::move(event), outbox);
  }
}

void Batcher::append_token(SequenceGroup& group, Sequence& sequence, Token token, Time now, Outbox& outbox) {
  const SamplingParams& sampling = group.request.sampling;
  const int64_t number = sequence.number;
  const bool is_end = std::find(sampling.eos.begin(), sampling.eos.end(), token.id) != sampling.eos.end();
  bool completes = false;
  if (!group.constraints.empty()) {
    const std::optional<bool> ends = append_to_constraint(group, number, token.id, is_end, outbox);
    if (!ends) return;
    completes = *ends;
  }
  for (Sequence& copy : group.sequences)
    if (copy.number == number) copy.tokens.push_back(token.id);
  ++statistics_.generation_tokens;
  Event event{.sequence = number, .tokens = {}};
  event.ends_with_text = completes && !is_end;
  if (is_end || completes)
    event.finish = Finish::Stop;
  else if (group.generated(sequence) == group.request.max_new_tokens || timed_out(group, now))
    event.finish = Finish::Length;
  event.tokens.push_back(std::move(token));
  const bool ends = event.finish != Finish::None;
  emit(group, std::move(event), outbox);
  if (!ends) return;
  for (Sequence& copy : group.sequences)
    if (copy.number == number) release_sequence(group, copy);
  if (group.width() > 1) std::erase_if(group.sequences, [&](const Sequence& one) { return one.number == number; });
}

void Batcher::advance(SequenceGroup& group, std::vector<Candidate> candidates, Time now, Outbox& outbox) {
  statistics_.generation_tokens += group.request.search.num_beams;
  const std::vector<BeamSearch::Next> next = group.search->advance(std::move(candidates), timed_out(group, now));
  const std::vector<float>& scores = group.search->scores();
  const bool goes_on = group.constraints.empty() || !std::all_of(scores.begin(), scores.end(), BeamSearch::is_dead);
  if (!next.empty() && goes_on) {
    if (continue_constraints(group, next, outbox)) reorder(group, next);
    return;
  }
  std::vector<BeamSearch::Hypothesis> hypotheses = group.search->hypotheses();
  const auto is_finished = [](const BeamSearch::Hypothesis& one) { return one.finished; };
  if (const auto found = std::count_if(hypotheses.begin(), hypotheses.end(), is_finished);
      !group.constraints.empty() && found < static_cast<std::ptrdiff_t>(hypotheses.size()))
    return fail_constraint(group,
                           "the beams found " + std::to_string(found) + " answers that it allows, and " +
                               std::to_string(hypotheses.size()) + " are to be returned",
                           outbox);
  int64_t number = 0;
  for (BeamSearch::Hypothesis& found : hypotheses) {
    Event event{.sequence = number++, .tokens = {}, .finish = found.ended ? Finish::Stop : Finish::Length};
    event.score = found.score;
    for (int32_t id : found.tokens) event.tokens.push_back({id, 0, {}});
    emit(group, std::move(event), outbox);
  }
}

namespace {

/// The constraint of a beam whose answer is complete.
class EndConstraint final : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<EndConstraint>(); }
  TokenMask next() override { return {{}, true}; }
  bool may_end() const override { return true; }
  bool append(int32_t) override { throw std::logic_error("a token comes behind a complete answer"); }
};

}  // namespace

/// Gives every beam its parent's constraint with its own token, and a beam that is no answer none. Returns false if the
/// request has failed with it.
bool Batcher::continue_constraints(SequenceGroup& group, const std::vector<BeamSearch::Next>& next, Outbox& outbox) {
  if (group.constraints.empty()) return true;
  std::vector<std::shared_ptr<TokenConstraint>> constraints;
  try {
    for (size_t i = 0; i < next.size(); ++i) {
      const auto beam = static_cast<size_t>(std::min(next[i].beam, group.width() - 1));
      std::shared_ptr<TokenConstraint>& own = constraints.emplace_back();
      if (BeamSearch::is_dead(group.search->scores()[i]) || !group.constraints[beam]) continue;
      own = group.constraints[beam]->fork();
      if (own->append(next[i].id)) own = std::make_shared<EndConstraint>();
    }
  } catch (const std::exception& error) {
    fail_constraint(group, error.what(), outbox);
    return false;
  }
  group.constraints = std::move(constraints);
  return true;
}

/// Moves every beam to its parent's block table; the first child of a parent keeps the parent's slot.
void Batcher::reorder(SequenceGroup& group, const std::vector<BeamSearch::Next>& next) {
  std::vector<Sequence> beams;
  std::vector<int32_t> parents, slots;  // slots of the beams' parents; those of the sequences so far
  for (const Sequence& sequence : group.sequences) slots.push_back(sequence.slot);
  const int64_t copies = group.copies(), last = group.width() - 1;
  for (int64_t number = 0; const BeamSearch::Next& one : next) {
    for (int64_t copy = 0; copy < copies; ++copy) {
      const auto index = static_cast<size_t>(std::min(one.beam, last) * copies + copy);
      Sequence& parent = group.sequences[index];
      parents.push_back(slots[index]);
      Sequence& beam = beams.emplace_back(parent);
      parent.slot = -1;
      beam.number = number;
      beam.tokens.push_back(one.id);
      for (int32_t block : beam.blocks) pool_.retain(block);
    }
    ++number;
  }
  for (Sequence& parent : group.sequences) {
    pool_.release(parent.blocks);
    if (parent.slot >= 0) group.spare_slots.push_back(parent.slot);
  }
  for (size_t i = 0; i < beams.size(); ++i)
    if (beams[i].slot < 0) give_slot(group, beams[i], parents[i]);
  group.sequences = std::move(beams);
}

bool Batcher::timed_out(const SequenceGroup& group, Time now) const {
  return group.request.max_time > 0 &&
         std::chrono::duration<double>(now - group.submitted).count() > group.request.max_time;
}

void Batcher::emit(SequenceGroup& group, Event event, Outbox& outbox) {
  if (!group.first_event_sent && group.cached_tokens >= 0) {
    group.first_event_sent = true;
    event.queued_seconds = std::chrono::duration<double>(group.admitted - group.submitted).count();
    event.cached_tokens = group.cached_tokens;
    if (group.request.prompt_logprobs >= 0 && static_cast<int64_t>(group.scored_prompt.size()) == group.scores_wanted())
      event.prompt_tokens = std::make_shared<const std::vector<PromptToken>>(std::move(group.scored_prompt));
    if (!event.tokens.empty())
      statistics_.prompt_tokens += group.has_source() ? group.source_states() : group.prompt_tokens();
  }
  if (event.finish != Finish::None) group.ended[static_cast<size_t>(event.sequence)] = true;
  if (group.on_event) outbox.emplace_back(group.on_event, std::move(event));
}

void Batcher::end_all(SequenceGroup& group, Finish finish, const std::string& reason, Outbox& outbox) {
  for (size_t i = 0; i < group.ended.size(); ++i) {
    if (!group.ended[i])
      emit(group, {.sequence = static_cast<int64_t>(i), .tokens = {}, .finish = finish, .reason = reason}, outbox);
  }
}

void Batcher::cancel(const std::string& id) {
  for (auto& group : waiting_)
    if (group->request.id == id) group->cancelled = true;
  for (auto& group : running_)
    if (group->request.id == id) group->cancelled = true;
}

void Batcher::cancel_all() {
  for (auto& group : waiting_) group->cancelled = true;
  for (auto& group : running_) group->cancelled = true;
}

void Batcher::drop_cancelled(Outbox& outbox) {
  const auto drop = [&](auto& groups) {
    std::erase_if(groups, [&](std::unique_ptr<SequenceGroup>& group) {
      if (!group->cancelled) return false;
      end_all(*group, Finish::Cancelled, {}, outbox);
      retire(std::move(group));
      return true;
    });
  };
  drop(waiting_);
  drop(running_);
}

void Batcher::fail_all(const std::string& reason, Outbox& outbox) {
  const auto fail = [&](SequenceGroup& group) {
    end_all(group, Finish::Failed, reason, outbox);
    group.on_event = nullptr;
    ++statistics_.failed;
  };
  for (auto& group : waiting_) fail(*group);
  for (auto& group : running_) fail(*group);
  waiting_.clear();
}

std::vector<int32_t> Batcher::take_freed_slots(bool all) {
  if (all) {
    for (const auto& group : running_) {
      for (const Sequence& sequence : group->sequences)
        if (sequence.sent_blocks > 0) freed_slots_.push_back(sequence.slot);
    }
  }
  return std::exchange(freed_slots_, {});
}

Statistics Batcher::statistics() const {
  Statistics result = statistics_;
  result.running = running();
  result.waiting = waiting();
  result.kv_blocks = pool_.size();
  result.kv_blocks_used = pool_.size() - pool_.available();
  return result;
}

}  // namespace pm::engine
