// SPDX-License-Identifier: Apache-2.0
// The head of classes, or of a projected vector.
#pragma once
#include "worker/layers/feed_forward/mlp.h"
#include "worker/models/heads/scoring.h"

namespace pm::models {

class ClassesHead final : public ScoringHead {
 public:
  ClassesHead(const policy::Model&, const policy::Head&, const policy::ClassesSpec&, layers::Loader&);

 protected:
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;
  /// Lowers the scores of the question's tokens where the head masks them.
  at::Tensor finish(const RequestForward&, const at::Tensor& states, const at::Tensor& scores) const override;

 private:
  struct Block {
    layers::Mlp mlp;
    std::optional<layers::Norm> norm;
  };
  double divisor_;
  bool mask_question_;
  std::optional<Block> block_;
  HeadTransform transform_;
  std::optional<layers::Linear> linear_;
};

}  // namespace pm::models
