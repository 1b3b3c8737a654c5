// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/scheduling/sequence_group.h"

#include <algorithm>

namespace pm::engine {

bool SequenceGroup::ready(const Sequence& sequence) const {
  return sequence.uncomputed_tokens() == 1 &&
         (!has_source() || sources[static_cast<size_t>(sequence.source)].encoded) &&
         (&sequence == sequences.data() || sequence.shared_tokens <= sequences.front().computed);
}

bool SequenceGroup::all_ready() const {
  return std::all_of(sequences.begin(), sequences.end(), [this](const Sequence& sequence) { return ready(sequence); });
}

int64_t SequenceGroup::source_states() const {
  int64_t states = 0;
  for (const EncoderSource& source : sources) states += source.states;
  return states;
}

bool SequenceGroup::done() const {
  return std::all_of(ended.begin(), ended.end(), [](bool one) { return one; });
}

int64_t max_blocks(int64_t prompt, int64_t max_new_tokens, int64_t source, int64_t width) {
  const int64_t shared = prompt / block_tokens;
  return blocks_for(source) + shared + width * (blocks_for(prompt + max_new_tokens) - shared);
}

}  // namespace pm::engine
