// SPDX-License-Identifier: Apache-2.0
// The head of projected states and quantized frames, as pre-training on audio compares them.
#pragma once
#include "worker/layers/layers.h"
#include "worker/models/heads/head.h"

namespace pm::models {

class CodebookHead final : public Head {
 public:
  CodebookHead(const policy::Model&, const policy::Head&, const policy::CodebookSpec&, layers::Loader&);
  void run(std::span<RequestForward>) const override;
  /// Refuses a stack that does not read audio, or that stands beside others.
  static void validate(const policy::Model&, const policy::Head&, const policy::CodebookSpec&);

 private:
  int64_t groups_;
  layers::Linear states_, scores_, quantized_;
  at::Tensor entries_;  ///< [groups, entries, part of a vector]
};

}  // namespace pm::models
