// SPDX-License-Identifier: Apache-2.0
// The head that compares the vectors of two towers, as CLIP does.
#pragma once
#include "worker/layers/loader.h"
#include "worker/models/heads/head.h"

namespace pm::models {

class SimilarityHead final : public Head {
 public:
  SimilarityHead(const policy::Model&, const policy::Head&, const policy::SimilaritySpec&, layers::Loader&);
  /// Puts out logits_per_text and logits_per_image [texts, images] where a request has both towers, the normalized
  /// vectors, and the vectors themselves under the names of the towers' poolers.
  void run(std::span<RequestForward>) const override;

 private:
  const policy::SimilaritySpec& spec_;
  double temperature_ = 1;
};

}  // namespace pm::models
