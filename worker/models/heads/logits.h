// SPDX-License-Identifier: Apache-2.0
// The LM head: scores over the vocabulary.
#pragma once
#include "worker/models/heads/scoring.h"

namespace pm::models {

class LanguageModelHead final : public ScoringHead {
 public:
  LanguageModelHead(const policy::Model&, const policy::Head&, const policy::LogitsSpec&, layers::Loader&);
  /// Returns the states as the matrix reads them: [rows, hidden] -> [rows, width].
  at::Tensor features(const at::Tensor& states) const { return transform_(states); }
  /// Returns the scores [rows, vocabulary] of states on rank 0; undefined elsewhere.
  at::Tensor scores(const at::Tensor& states, comm::Communicator&) const;
  const layers::LogitsHead* logits() const { return &logits_; }

 protected:
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;

 private:
  HeadTransform transform_;
  layers::LogitsHead logits_;
};

}  // namespace pm::models
