// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/bottleneck.h"

namespace pm::policy {

void Bottleneck::collect(ParamCollector& all) const {
  all.add(input);
  all.add(input_norm);
  all.add(attention);
  all.add(attention_norm);
  all.add(output);
  all.add(output_norm);
}

}  // namespace pm::policy
