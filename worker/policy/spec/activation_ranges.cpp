// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/activation_ranges.h"

namespace pm::policy {

void ActivationRange::collect(ParamCollector& all) const {
  all.add(low);
  all.add(high);
}

void QuantizedInput::collect(ParamCollector& all) const {
  for (const ActivationRange* range : {&sum, &output}) range->collect(all);
  all.add(shift);
}

void QuantizedAttention::collect(ParamCollector& all) const {
  for (const ActivationRange* range : {&input, &query, &key, &value, &heads, &sum, &output}) range->collect(all);
  if (exponents) exponents->collect(all);
  all.add(shift);
}

void QuantizedMlp::collect(ParamCollector& all) const {
  for (const ActivationRange* range : {&input, &activation, &down, &sum, &output}) range->collect(all);
  all.add(shift);
}

}  // namespace pm::policy
