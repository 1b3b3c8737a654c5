// Beam search as Hugging Face's generate does it: which continuations go on, which are finished, and when no better one can come.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/request.h"

namespace pm::engine {

/// A token that may follow a beam. `score`: the beam's log-probability with it; `rank`: what candidates are ordered by, higher first (the score
/// itself, or the score with noise when candidates are drawn).
struct Candidate {
  int64_t beam = 0;
  int32_t id = 0;
  float score = 0;
  double rank = 0;
};

/// The search of one request. Arithmetic in fp32 and in the order of transformers' _beam_search, so that ties and penalties fall alike.
class BeamSearch {
 public:
  BeamSearch(const Search&, std::span<const int32_t> eos, int64_t max_new_tokens);

  /// Scores that the beams have now; before the first token one prompt stands for all, and only the first counts.
  const std::vector<float>& scores() const { return scores_; }
  /// How many candidates a step needs: enough to go on when the best ones all end.
  int64_t wanted() const { return wanted_; }

  struct Next { int64_t beam = 0; int32_t id = 0; };
  /// Takes the best wanted() candidates over all beams in any order, and says which beams go on with which token. Empty: the search is over.
  /// `last`: every candidate ends here (time is up).
  std::vector<Next> advance(std::vector<Candidate> candidates, bool last);

  struct Found { std::vector<int32_t> tokens; float score = 0; bool ended = false; };
  /// The best num_return_sequences, best first: answers with their end tokens. `ended`: by an end token.
  std::vector<Found> found() const;

 private:
  struct Beam { std::vector<int32_t> tokens; float score = 0; bool finished = false, ended = false; };
  bool improvable() const;

  const Search search_;
  const std::vector<int32_t> eos_;
  const int64_t max_new_tokens_, wanted_;
  int64_t length_ = 0;                        ///< tokens of the running answers
  std::vector<std::vector<int32_t>> running_; ///< answers
  std::vector<float> scores_;
  std::vector<Beam> finished_;                ///< num_beams places, best first; those not filled have -1e9
  bool may_improve_ = true;
};

}  // namespace pm::engine
