// SPDX-License-Identifier: Apache-2.0
// The head of classes, or of a projected vector.
#pragma once
#include "worker/models/heads/scoring.h"

namespace pm::models {

class ClassesHead final : public ScoringHead {
 public:
  ClassesHead(const policy::Model&, const policy::Head&, const policy::ClassesSpec&, layers::Loader&);

 protected:
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;

 private:
  HeadTransform transform_;
  std::optional<layers::Linear> linear_;
};

}  // namespace pm::models
