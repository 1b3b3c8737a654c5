// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/mlp.h"

namespace pm::policy {

void DenseMlp::collect(ParamCollector& all) const {
  all.add(up);
  all.add(down);
}

void GatedMlp::collect(ParamCollector& all) const {
  all.add(up);
  all.add(gate);
  all.add(down);
}

const Linear& Mlp::down() const {
  return std::visit([](const auto& mlp) -> const Linear& { return mlp.down; }, kind);
}

int64_t Mlp::width() const {
  return std::visit([](const auto& mlp) { return mlp.width; }, kind);
}

void Mlp::collect(ParamCollector& all) const {
  all.add(norm);
  all.add(post_norm);
  std::visit([&](const auto& mlp) { mlp.collect(all); }, kind);
  if (quantized) quantized->collect(all);
}

}  // namespace pm::policy
