// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/bottleneck.h"

#include <ATen/ATen.h>

namespace pm::layers {

namespace {

std::vector<const policy::Linear*> inputs_of(const policy::Bottleneck& bottleneck) {
  if (bottleneck.attention) return {&bottleneck.input, &*bottleneck.attention};
  return {&bottleneck.input};
}

}  // namespace

InputBottleneck::InputBottleneck(const policy::Bottleneck& bottleneck, Loader& loader)
    : wide_(bottleneck.wide),
      has_attention_(bottleneck.attention.has_value()),
      linears_(inputs_of(bottleneck), loader) {
  if (bottleneck.input_norm) norm_.emplace(*bottleneck.input_norm, loader);
  if (bottleneck.attention_norm) attention_norm_.emplace(*bottleneck.attention_norm, loader);
}

InputBottleneck::States InputBottleneck::operator()(const at::Tensor& x, comm::Communicator& comm) const {
  const std::vector<at::Tensor> made = linears_(x, comm);
  States states;
  states.narrow = norm_ ? (*norm_)(made[0]) : made[0];
  states.attended = states.values = wide_ ? x : states.narrow;
  if (has_attention_) states.attended = attention_norm_ ? (*attention_norm_)(made[1]) : made[1];
  return states;
}

OutputBottleneck::OutputBottleneck(const policy::Bottleneck& bottleneck, Loader& loader)
    : linear_({&bottleneck.output}, loader) {
  if (bottleneck.output_norm) norm_.emplace(*bottleneck.output_norm, loader);
}

at::Tensor OutputBottleneck::operator()(const at::Tensor& narrow, const at::Tensor& x, comm::Communicator& comm) const {
  at::Tensor made = linear_(narrow, comm).front();
  return norm_ ? norm_->of_sum(made, x, at::kFloat) : made.add_(x);
}

}  // namespace pm::layers
