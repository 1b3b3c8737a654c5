// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/recurrent/short_convolution.h"

namespace pm::policy {

void ShortConvolution::collect(ParamCollector& all) const {
  for (const Linear* linear : {&before, &behind, &input, &convolution, &out}) all.add(*linear);
}

}  // namespace pm::policy
