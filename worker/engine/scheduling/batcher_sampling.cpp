// SPDX-License-Identifier: Apache-2.0
// Says what the ranks compute from the rows of an entry, and what rank 0 samples with.
#include <algorithm>
#include <limits>

#include "worker/engine/sampling/sampler.h"
#include "worker/engine/scheduling/batcher_plan.h"

namespace pm::engine {

namespace {

/// Returns true if the next token is a plain argmax, so that no rank needs the logits of the whole vocabulary.
bool uses_argmax(const SequenceGroup& group) {
  const SamplingParams& sampling = group.request.sampling;
  return !group.search && !group.is_weighted() && !sampling.do_sample && !sampling.edits_scores() &&
         group.request.logprobs < 0 && !group.request.constraint;
}

}  // namespace

/// Has the ranks score the tokens of the prompt that follow the rows of an entry, each once.
void Batcher::add_prompt_scores(SequenceGroup& group, const Sequence& sequence, StepEntry& entry,
                                Planned& planned) const {
  if (!group.scores_prompt() || entry.context != group.scores_planned) return;
  const int64_t count = std::min(static_cast<int64_t>(entry.tokens.size()), group.scores_wanted() - entry.context);
  const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(entry.context) + 1;
  entry.scored.assign(first, first + static_cast<std::ptrdiff_t>(count));
  entry.scored_best = group.request.prompt_logprobs;
  planned.scored = entry.scored.size();
  group.scores_planned += count;
}

void Batcher::add_sampling(Plan& plan, SequenceGroup& group, Sequence& sequence, StepEntry& entry, Planned& planned) {
  const Request& request = group.request;
  planned.samples = sequence.source == 0;  // one result for the sequences of all sources
  const int32_t forced = request.sampling.forced_token(sequence.length(), group.generated(sequence));
  if (forced >= 0 && !group.search && request.logprobs < 0) {
    planned.forced = planned.samples;
    planned.token = forced;
    return;
  }
  // sampled sequences fork with their first token
  const bool parts = !group.search && group.width() == 1 && group.generated(sequence) == 0;
  const int64_t num_samples = parts ? request.search.num_return_sequences : 1;
  const History history{sequence.tokens, request.prompt.size()};
  std::shared_ptr<std::vector<int32_t>> drafted;  // the tokens of the sequence and its drafts
  if (entry.drafts > 0) {
    drafted = std::make_shared<std::vector<int32_t>>(sequence.tokens);
    drafted->insert(drafted->end(), entry.tokens.end() - entry.drafts, entry.tokens.end());
  }
  if (uses_argmax(group)) {
    entry.output_kind = OutputKind::Argmax;
    return;
  }
  // The host samples the tokens of a constraint, from all logits: no rank needs the mask then.
  if (limits_.device_sampling && !group.search && !group.is_weighted() && request.logprobs < 0 && !request.constraint &&
      supports_device_sampling(request.sampling, limits_.vocabulary)) {
    const auto sampling_after = [&](const History& so_far) {
      return device_sampling(request.sampling, so_far, sequence.number, num_samples,
                             static_cast<size_t>(limits_.vocabulary));
    };
    entry.output_kind = OutputKind::Sampled;
    entry.device_sampling = sampling_after(history);
    for (size_t length = sequence.tokens.size() + 1; drafted && length <= drafted->size(); ++length)
      entry.draft_sampling.push_back(sampling_after({std::span(*drafted).first(length), history.prompt}));
    return;
  }
  entry.output_kind = OutputKind::Logits;
  if (!planned.samples) return;
  SamplingInput input{.sampling = &request.sampling,
                      .history = history,
                      .sequence = sequence.number,
                      .num_samples = num_samples,
                      .logprobs = request.logprobs,
                      .log_weights = group.log_weights,
                      .beams = {},
                      .drafted = std::move(drafted)};
  if (request.constraint) input.constraint = group.constraints.at(static_cast<size_t>(sequence.number));
  if (group.search) {
    const std::vector<float>& scores = group.search->scores();
    input.beams = Beams{sequence.number,
                        group.width() == 1 ? scores : std::vector<float>{scores[static_cast<size_t>(sequence.number)]},
                        group.search->num_candidates()};
    if (request.constraint && !input.constraint)  // the beam is no answer, and nor is what continues it
      input.beams->scores.assign(1, -std::numeric_limits<float>::infinity());
  }
  plan.sampling_inputs.push_back(std::move(input));
}

}  // namespace pm::engine
