// SPDX-License-Identifier: Apache-2.0
// Beam search as in Hugging Face's generate().
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/engine.h"

namespace pm::engine {

/// A token that may follow a beam. `score` is the log-probability of the beam with this token. Candidates are ranked by
/// `sort_key`, highest first: the score, or the score with Gumbel noise when sampling.
struct Candidate {
  int64_t beam = 0;
  int32_t id = 0;
  float score = 0;
  double sort_key = 0;
};

/// The beam search of one request. It computes in fp32 and in the order of transformers' _beam_search, so that ties and
/// penalties agree.
class BeamSearch {
 public:
  BeamSearch(const SearchParams&, std::span<const int32_t> eos, int64_t max_new_tokens);

  /// Scores of the running beams. Before the first token all beams are the same prompt and only the first score counts.
  const std::vector<float>& scores() const { return scores_; }
  /// Number of candidates per step: enough to continue if the best ones all end.
  int64_t num_candidates() const { return num_candidates_; }

  struct Next {
    int64_t beam = 0;
    int32_t id = 0;
  };
  /// Takes the best num_candidates() candidates over all beams, in any order, and returns the beams that continue and
  /// their tokens; empty if the search is over. `last` ends every candidate (time limit).
  std::vector<Next> advance(std::vector<Candidate> candidates, bool last);

  /// Returns whether a beam with this score is no answer so far: it ended, or no token was left for it.
  static bool is_dead(float score);

  struct Hypothesis {
    std::vector<int32_t> tokens;
    float score = 0;
    bool ended = false, finished = false;
  };
  /// Returns the best num_return_sequences answers with their end tokens, best first. `ended` is true if an end token
  /// ended the answer. Those that are not `finished` stand for answers of which there are too few.
  std::vector<Hypothesis> hypotheses() const;

 private:
  struct Beam {
    std::vector<int32_t> tokens;
    float score = 0;
    bool finished = false, ended = false;
  };
  bool improvable() const;

  const SearchParams search_;
  const std::vector<int32_t> eos_;
  const int64_t max_new_tokens_, num_candidates_;
  int64_t length_ = 0;                         ///< tokens of the running answers
  std::vector<std::vector<int32_t>> running_;  ///< tokens of each running answer
  std::vector<float> scores_;
  std::vector<Beam> finished_;  ///< num_beams elements, best first; unused ones have the score -1e9
  bool may_improve_ = true;
};

}  // namespace pm::engine
