// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/mlp.h"

#include <algorithm>

namespace pm::policy {

void Xielu::collect(ParamCollector& all) const {
  for (const Param* number : {&positive, &negative, &beta, &eps}) all.add(*number);
}

void DenseMlp::collect(ParamCollector& all) const {
  all.add(up);
  if (xielu) xielu->collect(all);
  all.add(down);
}

void GatedMlp::collect(ParamCollector& all) const {
  all.add(up);
  all.add(gate);
  all.add(down);
}

void Router::collect(ParamCollector& all) const {
  all.add(linear);
  all.add(choice_bias);
  all.add(norm);
  all.add(expert_factors);
}

void Experts::collect(ParamCollector& all) const {
  router.collect(all);
  for (const GatedMlp& expert : experts) expert.collect(all);
  if (shared) shared->collect(all);
  all.add(shared_gate);
}

const Linear& Mlp::down() const {
  if (const auto* routed = std::get_if<Experts>(&kind)) return routed->experts.front().down;
  const auto* gated = std::get_if<GatedMlp>(&kind);
  return gated ? gated->down : std::get<DenseMlp>(kind).down;
}

int64_t Mlp::width() const {
  if (const auto* routed = std::get_if<Experts>(&kind))
    return std::max(routed->experts.front().width, routed->shared ? routed->shared->width : 0);
  const auto* gated = std::get_if<GatedMlp>(&kind);
  return gated ? gated->width : std::get<DenseMlp>(kind).width;
}

void Mlp::collect(ParamCollector& all) const {
  all.add(norm);
  all.add(post_norm);
  std::visit([&](const auto& mlp) { mlp.collect(all); }, kind);
  if (quantized) quantized->collect(all);
}

}  // namespace pm::policy
