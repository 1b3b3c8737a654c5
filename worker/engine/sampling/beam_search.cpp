// SPDX-License-Identifier: Apache-2.0
// Beam search. Comments name the corresponding functions of transformers/generation/utils.py.
#include "worker/engine/sampling/beam_search.h"

#include <algorithm>
#include <cmath>

namespace pm::engine {

namespace {

constexpr float lowest_score = -1.0e9f;  // the value with which transformers excludes a candidate

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Divides as torch divides an fp32 tensor by a number.
float penalised(float score, int64_t length, double penalty) {
  return score / static_cast<float>(std::pow(static_cast<double>(length), penalty));
}

}  // namespace

BeamSearch::BeamSearch(const SearchParams& search, std::span<const int32_t> eos, int64_t max_new_tokens)
    : search_(search),
      eos_(eos.begin(), eos.end()),
      max_new_tokens_(max_new_tokens),
      num_candidates_(std::max<int64_t>(2, 1 + static_cast<int64_t>(eos.size())) * search.num_beams),
      running_(static_cast<size_t>(search.num_beams)),
      scores_(static_cast<size_t>(search.num_beams), lowest_score),
      finished_(static_cast<size_t>(search.num_beams), Beam{.tokens = {}, .score = lowest_score}) {
  scores_[0] = 0;  // all beams start with the same prompt, so only the first one counts
}

std::vector<BeamSearch::Next> BeamSearch::advance(std::vector<Candidate> candidates, bool last) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.sort_key > b.sort_key; });
  if (static_cast<int64_t>(candidates.size()) > num_candidates_)
    candidates.resize(static_cast<size_t>(num_candidates_));
  const auto beams = static_cast<size_t>(search_.num_beams);
  const int64_t length = length_ + 1;
  const auto stops = [&](const Candidate& candidate) {
    return last || length >= max_new_tokens_ || contains(eos_, candidate.id);
  };

  // _update_finished_beams: only the best num_beams candidates may end a sequence; the further ones keep enough beams
  // running. Its case of early_stopping with num_beams finished sequences cannot occur here, because that search has
  // ended
  std::vector<Beam> merged = finished_;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const bool ends = i < beams && stops(candidate);
    float score = penalised(candidate.score, length, search_.length_penalty);
    if (!may_improve_) score += lowest_score;
    if (!ends) score += lowest_score;
    std::vector<int32_t> tokens = running_[static_cast<size_t>(candidate.beam)];
    tokens.push_back(candidate.id);
    merged.push_back({std::move(tokens), score, ends, contains(eos_, candidate.id)});
  }
  std::stable_sort(merged.begin(), merged.end(), [](const Beam& a, const Beam& b) { return a.score > b.score; });
  merged.resize(beams);
  finished_ = std::move(merged);

  // _get_running_beams_for_next_iteration
  const bool none_goes_on = std::all_of(candidates.begin(), candidates.end(), stops);
  for (Candidate& candidate : candidates)
    if (stops(candidate)) candidate.score += lowest_score;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  std::vector<Next> next;
  std::vector<std::vector<int32_t>> running;
  for (size_t i = 0; i < beams; ++i) {
    const Candidate& candidate = candidates[std::min(i, candidates.size() - 1)];
    running.push_back(running_[static_cast<size_t>(candidate.beam)]);
    running.back().push_back(candidate.id);
    scores_[i] = candidate.score;
    next.push_back({candidate.beam, candidate.id});
  }
  running_ = std::move(running);
  length_ = length;
  may_improve_ = may_improve_ && improvable();
  const bool enough = search_.early_stopping == EarlyStopping::Yes &&
                      std::all_of(finished_.begin(), finished_.end(), [](const Beam& b) { return b.finished; });
  if (!may_improve_ || enough || none_goes_on) next.clear();
  return next;
}

/// _check_early_stop_heuristic: returns true if the best running beam can still beat the worst finished one.
bool BeamSearch::improvable() const {
  const bool at_most = search_.early_stopping == EarlyStopping::Never && search_.length_penalty > 0;
  const float best = penalised(scores_[0], at_most ? max_new_tokens_ : length_, search_.length_penalty);
  float worst = finished_[0].score;
  for (const Beam& beam : finished_) worst = std::min(worst, beam.score);
  return std::any_of(finished_.begin(), finished_.end(),
                     [&](const Beam& beam) { return best > (beam.finished ? worst : lowest_score); });
}

bool BeamSearch::is_dead(float score) { return score <= lowest_score / 2; }

std::vector<BeamSearch::Hypothesis> BeamSearch::hypotheses() const {
  std::vector<Hypothesis> found;
  for (int64_t i = 0; i < search_.num_return_sequences; ++i) {
    const Beam& beam = finished_[static_cast<size_t>(i)];
    found.push_back({beam.tokens, beam.score, beam.ended, beam.finished});
  }
  return found;
}

}  // namespace pm::engine
