// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/span_convolution.h"

namespace pm::policy {

void SpanConvolution::collect(ParamCollector& all) const {
  all.add(depthwise);
  all.add(pointwise);
  all.add(kernel);
  all.add(values);
}

}  // namespace pm::policy
