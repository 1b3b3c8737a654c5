// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/recurrent/delta_net.h"

namespace pm::policy {

void DeltaNet::collect(ParamCollector& all) const {
  for (const Linear* linear : {&query, &key, &value, &output_gate, &beta, &step}) all.add(*linear);
  for (const Param* param : {&query_taps, &key_taps, &value_taps, &decay, &step_bias}) all.add(*param);
  all.add(norm.weight);
  all.add(norm.bias);
  all.add(out);
}

}  // namespace pm::policy
