// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/input/dense_vectors.h"

namespace pm::policy {

void Vectors::collect(ParamCollector& all) const {
  for (const Part& part : parts) {
    all.add(part.projection);
    all.add(part.norm);
  }
}

}  // namespace pm::policy
