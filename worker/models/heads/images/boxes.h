// SPDX-License-Identifier: Apache-2.0
// The head that gives the boxes of detected objects.
#pragma once
#include <vector>

#include "worker/models/heads/scoring.h"

namespace pm::models {

class BoxesHead final : public ScoringHead {
 public:
  BoxesHead(const policy::Model&, const policy::Head&, const policy::BoxesSpec&, layers::Loader&);

 private:
  /// Returns [center x, center y, width, height] of each state, as shares of its image without padding.
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;
  std::vector<layers::Linear> layers_;
};

}  // namespace pm::models
