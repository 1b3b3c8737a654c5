// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/param.h"

namespace pm::policy {

void ParamCollector::add(const Param& param) {
  if (param.tensor) params_.push_back(&param);
}

void ParamCollector::add(const std::optional<Param>& param) {
  if (param) add(*param);
}

void ParamCollector::add(const Linear& linear) {
  add(linear.weight);
  add(linear.bias);
}

void ParamCollector::add(const std::optional<Linear>& linear) {
  if (linear) add(*linear);
}

void ParamCollector::add(const std::optional<Norm>& norm) {
  if (!norm) return;
  add(norm->weight);
  add(norm->bias);
}

}  // namespace pm::policy
