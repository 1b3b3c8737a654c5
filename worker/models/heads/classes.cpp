// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/classes.h"

#include <ATen/ATen.h>

namespace pm::models {

ClassesHead::ClassesHead(const policy::Model& model, const policy::Head& head, const policy::ClassesSpec& classes,
                         layers::Loader& loader)
    : ScoringHead(model, head, classes.vector), transform_(classes.transform, loader) {
  if (classes.linear) linear_.emplace(*classes.linear, loader);
}

at::Tensor ClassesHead::score(const at::Tensor& states, comm::Communicator&) const {
  const at::Tensor x = transform_(states);
  return linear_ ? (*linear_)(x) : x;
}

}  // namespace pm::models
