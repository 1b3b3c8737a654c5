// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/recurrent/state_space.h"

namespace pm::policy {

void StateSpace::collect(ParamCollector& all) const {
  for (const Linear* linear : {&output_gate, &value, &write, &read, &step, &value_taps, &write_taps, &read_taps})
    all.add(*linear);
  for (const Param* param : {&decay, &step_bias, &skip}) all.add(*param);
  all.add(norm.weight);
  all.add(out);
}

}  // namespace pm::policy
