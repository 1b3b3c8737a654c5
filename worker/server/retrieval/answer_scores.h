// SPDX-License-Identifier: Apache-2.0
// The candidates of RAG-Sequence and their probabilities over all passages ("thorough decoding"; Lewis et al. 2020), as
// transformers' RagSequenceForGeneration has them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/policy/spec/retrieval.h"

namespace pm::server {

/// An answer that the generator made of one passage, with the decoder's start token.
struct AnswerCandidate {
  std::vector<int32_t> tokens;
  bool ended = false;              ///< by an end token
  std::vector<double> likelihood;  ///< of each passage: the sum of the tokens' log-probabilities, once scored
  double score = 0;                ///< log(sum over passages of exp(likelihood)), where it was weighted
};

/// Removes padding behind the tokens, and with retrieval.deduplicate all but the first of equal candidates.
void prepare_candidates(std::vector<AnswerCandidate>&, const policy::Retrieval&);
/// Returns whether every candidate begins with the token `bos` behind the start token, which is not scored then.
bool begin_with_bos(std::span<const AnswerCandidate>, const policy::Retrieval&);
/// Adds to a candidate the likelihood of the next passage: the log-probabilities of its tokens but padding, of
/// `logits` [tokens, vocabulary]. Where a second token is scored, the passage's `log_weight` counts with it.
void score_passage(AnswerCandidate&, std::span<const float> logits, double log_weight, bool skip_bos,
                   const policy::Retrieval&);
/// Sets the scores and sorts the candidates, best first; equal ones stay in order.
void rank_candidates(std::vector<AnswerCandidate>&);

}  // namespace pm::server
