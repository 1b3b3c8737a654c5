// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/recurrent/selective_state_space.h"

#include <ATen/ATen.h>

#include "worker/ops/recurrent/selective_scan.h"

namespace pm::layers {

StateSpace::StateSpace(const policy::StateSpace& block, Loader& loader)
    : heads_(loader.range(block.sharded()).size() * (block.heads / block.units())),
      groups_(block.is_shared() ? 1 : loader.range(block.sharded()).size()),
      head_dim_(block.head_dim),
      state_size_(block.state_size),
      all_values_(block.heads * block.head_dim),
      shared_(block.is_shared()),
      least_step_(block.least_step),
      most_step_(block.most_step),
      eps_(block.norm.eps),
      in_({&block.output_gate, &block.value, &block.write, &block.read, &block.step}, loader),
      decay_(loader.weight(block.decay)),
      step_bias_(loader.weight(block.step_bias)),
      skip_(loader.weight(block.skip)),
      norm_(loader.weight(block.norm.weight.value())),
      out_(block.out, loader) {
  for (const policy::Linear* part : {&block.value_taps, &block.write_taps, &block.read_taps}) {
    taps_.push_back(loader.weight(part->weight));
    if (part->bias) biases_.push_back(loader.weight(*part->bias));
  }
}

/// Runs the recurrence; `factors` are the steps.
at::Tensor StateSpace::read(Rows r) const {
  const int64_t rows = r.convolved.size(0), values = heads_ * head_dim_, written = groups_ * state_size_;
  const at::Tensor x = r.convolved.narrow(1, 0, values).reshape({rows, heads_, head_dim_}), steps = r.factors[0];
  const auto of_groups = [&](int64_t column) {
    return r.convolved.narrow(1, column, written).reshape({rows, groups_, state_size_});
  };
  const ops::SelectiveScan space{.reads = of_groups(values + written),
                                 .writes = of_groups(values),
                                 .values = x * steps.unsqueeze(2),
                                 .decays = steps * decay_.value().to(at::kFloat).exp().neg()};
  at::Tensor result = r.single ? ops::selective_scan_step(space, r.matrices) : ops::selective_scan(space, r.matrices);
  return result.addcmul_(x, skip_.value().to(at::kFloat).unsqueeze(1)).reshape({rows, values});
}

/// Norms the values of each group, of which one that all ranks share has a mean over all of them.
at::Tensor StateSpace::normed(const at::Tensor& x, comm::Communicator& comm) const {
  const at::Tensor grouped = x.reshape({x.size(0), groups_, -1});
  at::Tensor squares = grouped.square().sum(2, /*keepdim=*/true);
  if (shared_ && comm.size() > 1) comm.all_reduce(squares);
  const auto count = static_cast<double>(shared_ ? all_values_ : grouped.size(2));
  return (grouped * at::rsqrt(squares.div_(count).add_(eps_))).reshape(x.sizes()).mul_(norm_.value().to(at::kFloat));
}

at::Tensor StateSpace::operator()(const at::Tensor& x, const Batch& batch, LayerState* state,
                                  comm::Communicator& comm) const {
  const int64_t values = heads_ * head_dim_, channels = values + 2 * groups_ * state_size_;
  const at::Tensor projected = in_(x), step_bias = step_bias_.value().to(at::kFloat);
  const at::Tensor steps = at::softplus(projected.narrow(1, values + channels, heads_).to(at::kFloat) + step_bias)
                               .clamp_(least_step_, most_step_);
  const at::Tensor result =
      run(projected.narrow(1, values, channels).to(at::kFloat), {steps},
          convolution(taps_, biases_, /*activated=*/true), {heads_, state_size_, head_dim_}, batch, state);
  const at::Tensor gate = projected.narrow(1, 0, values).to(at::kFloat);
  return normed(result * at::silu(gate), comm).to(x.scalar_type());
}

}  // namespace pm::layers
