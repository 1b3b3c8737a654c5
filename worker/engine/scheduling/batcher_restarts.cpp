// SPDX-License-Identifier: Apache-2.0
// Preemption, requests that are computed again, and the release of blocks and slots.
#include <algorithm>

#include "worker/engine/scheduling/batcher.h"

namespace pm::engine {

void Batcher::preempt_last() {
  std::unique_ptr<SequenceGroup> group = std::move(running_.back());
  running_.pop_back();
  ++statistics_.preempted;
  free_resources(*group);
  waiting_.push_front(std::move(group));
}

/// Returns whether the keys of the sequence are rotated by factors that are not those of its length any more.
bool Batcher::has_outgrown(const SequenceGroup& group, const Sequence& sequence) const {
  return limits_.short_rope_tokens > 0 && !limits_.recomputes && !group.long_rope &&
         sequence.length() > limits_.short_rope_tokens;
}

/// Lets requests whose sequences have all outgrown their factors wait at the head of the queue, without blocks, so that
/// all their tokens are computed again. The first of several sequences wait for the others.
void Batcher::restart_outgrown() {
  if (limits_.short_rope_tokens == 0) return;
  for (size_t i = running_.size(); i-- > 0;) {
    SequenceGroup& group = *running_[i];
    if (group.in_flight > 0 || !std::all_of(group.sequences.begin(), group.sequences.end(),
                                            [&](const Sequence& one) { return has_outgrown(group, one); }))
      continue;
    free_resources(group);
    waiting_.push_front(std::move(running_[i]));
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// Ends a request. Steps in flight still refer to it.
void Batcher::retire(std::unique_ptr<SequenceGroup> group) {
  free_resources(*group);
  group->retired = true;
  if (group->in_flight > 0) retired_.push_back(std::move(group));
}

/// Releases all blocks and slots; the tokens stay. A prompt that is scored in part is scored again.
void Batcher::free_resources(SequenceGroup& group) {
  if (group.scores_prompt()) group.scored_prompt.clear(), group.scores_planned = 0;
  for (Sequence& sequence : group.sequences) {
    release_sequence(group, sequence);
    sequence.computed = sequence.shared_tokens = sequence.sent_blocks = sequence.cached_blocks = sequence.prefix_node =
        0;
    sequence.reset_table = true;
  }
  for (EncoderSource& source : group.sources) {
    pool_.release(source.blocks);
    source.blocks.clear();
    source.encoded = false;
  }
  free_slots_.insert(free_slots_.end(), group.spare_slots.begin(), group.spare_slots.end());
  group.spare_slots.clear();
}

void Batcher::release_sequence(SequenceGroup& group, Sequence& sequence) {
  pool_.release(sequence.blocks);
  sequence.blocks.clear();
  if (sequence.slot < 0) return;
  if (sequence.sent_blocks > 0) freed_slots_.push_back(sequence.slot);
  if (drafter_) drafter_->forget(sequence.slot);
  group.spare_slots.push_back(sequence.slot);
  sequence.slot = -1;
}

}  // namespace pm::engine
