// SPDX-License-Identifier: Apache-2.0
#include "worker/server/retrieval/answer_scores.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "worker/engine/sampling/sampler.h"

namespace pm::server {

namespace {

/// Returns the token that is scored at a position: the next one, or padding behind the last.
int64_t target(const AnswerCandidate& candidate, size_t position, const policy::Retrieval& retrieval) {
  return position + 1 < candidate.tokens.size() ? candidate.tokens[position + 1] : retrieval.pad;
}

}  // namespace

void prepare_candidates(std::vector<AnswerCandidate>& candidates, const policy::Retrieval& retrieval) {
  std::set<std::vector<int32_t>> seen;
  for (AnswerCandidate& candidate : candidates)
    while (candidate.tokens.size() > 1 && candidate.tokens.back() == retrieval.pad) candidate.tokens.pop_back();
  if (!retrieval.deduplicate) return;
  std::erase_if(candidates, [&](const AnswerCandidate& candidate) { return !seen.insert(candidate.tokens).second; });
}

bool begin_with_bos(std::span<const AnswerCandidate> candidates, const policy::Retrieval& retrieval) {
  return retrieval.bos >= 0 && std::all_of(candidates.begin(), candidates.end(), [&](const AnswerCandidate& candidate) {
           return target(candidate, 0, retrieval) == retrieval.bos;
         });
}

void score_passage(AnswerCandidate& candidate, std::span<const float> logits, double log_weight, bool skip_bos,
                   const policy::Retrieval& retrieval) {
  const size_t positions = candidate.tokens.size(), columns = logits.size() / positions;
  double sum = 0;
  for (size_t position = skip_bos ? 1 : 0; position < positions; ++position) {
    const int64_t token = target(candidate, position, retrieval);
    if (token == retrieval.pad) continue;
    sum += engine::log_softmax(logits.subspan(position * columns, columns))[static_cast<size_t>(token)];
    if (position == 1) sum += log_weight;
  }
  candidate.likelihood.push_back(sum);
}

void rank_candidates(std::vector<AnswerCandidate>& candidates) {
  for (AnswerCandidate& candidate : candidates) {
    const double best = *std::max_element(candidate.likelihood.begin(), candidate.likelihood.end());
    double sum = 0;
    for (const double one : candidate.likelihood) sum += std::exp(one - best);
    candidate.score = best + std::log(sum);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const AnswerCandidate& a, const AnswerCandidate& b) { return a.score > b.score; });
}

}  // namespace pm::server
