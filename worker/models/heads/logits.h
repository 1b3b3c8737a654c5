// SPDX-License-Identifier: Apache-2.0
// The LM head: scores over the vocabulary.
#pragma once
#include "worker/models/heads/scoring.h"

namespace pm::models {

class LanguageModelHead final : public VocabularyHead {
 public:
  LanguageModelHead(const policy::Model&, const policy::Head&, const policy::LogitsSpec&, layers::Loader&);
  at::Tensor scores(const at::Tensor& states, comm::Communicator&) const override;
  /// Each rank sends its highest score and token instead of all scores.
  at::Tensor best(const at::Tensor& states, comm::Communicator&) const override;

 protected:
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;

 private:
  HeadTransform transform_;
  layers::LogitsHead logits_;
};

}  // namespace pm::models
