// SPDX-License-Identifier: Apache-2.0
// Column-parallel and row-parallel linears, and the LM head.
#include <ATen/ATen.h>

#include <algorithm>

#include "worker/layers/layers.h"
#include "worker/ops/linear.h"

namespace pm::layers {

Linear::Linear(const policy::Linear& linear, Loader& loader) : weight_(loader.load(linear.weight)) {
  weight_ = weight_.dim() == 1 ? weight_.unsqueeze(0) : weight_.flatten(1);
  if (linear.bias) bias_ = loader.load(*linear.bias);
}

at::Tensor Linear::operator()(const at::Tensor& x) const { return ops::linear(x, weight_, bias_); }

ColumnLinear::ColumnLinear(std::vector<const policy::Linear*> linears, Loader& loader) {
  if (std::any_of(linears.begin(), linears.end(), [](const auto* one) { return one->weight.diagonal_blocks > 1; })) {
    for (const policy::Linear* linear : linears) {  // members of a Single load in the order in which they are used
      singles_.push_back(
          {linear->bias ? loader.weight(*linear->bias) : Weight(), BlockDiagonal(linear->weight, loader)});
    }
    return;
  }
  std::vector<const policy::Param*> weights, biases;
  for (const policy::Linear* linear : linears) {
    weights.push_back(&linear->weight);
    if (linear->bias) biases.push_back(&*linear->bias);
  }
  if (biases.size() == linears.size()) {
    bias_ = loader.weight(biases);
  } else if (!biases.empty()) {  // only some have a bias (q and v of DeBERTa): zeros for the others
    int64_t row = 0;
    for (const policy::Linear* linear : linears) {
      if (linear->bias) some_.push_back({row, loader.weight(*linear->bias)});
      row += policy::local_shape(linear->weight, loader.range(linear->weight))[0];
    }
  }
  weight_ = loader.weight(weights);
  if (some_.empty() || some_.front().bias.is_gathered()) return;
  bias_ = Weight(bias());
  some_.clear();
}

at::Tensor ColumnLinear::bias() const {
  if (some_.empty()) return bias_.value();
  at::Tensor all = at::zeros({weight_.size(0)}, some_.front().bias.value().options());
  for (const auto& [row, bias] : some_) all.narrow(0, row, bias.size(0)).copy_(bias.value());
  return all;
}

at::Tensor ColumnLinear::operator()(const at::Tensor& x) const {
  if (singles_.empty()) {
    const at::Tensor added = bias();
    return weight_.linear(x, added);
  }
  std::vector<at::Tensor> all;
  for (const auto& [bias, weight] : singles_) {
    const at::Tensor added = bias.value();
    at::Tensor& made = all.emplace_back(weight(x));
    if (added.defined()) made.add_(added);
  }
  return all.size() == 1 ? all[0] : at::cat(all, 1);
}

RowLinear::RowLinear(const policy::Linear& linear, Loader& loader) {
  if (linear.weight.diagonal_blocks > 1)
    diagonal_.emplace(linear.weight, loader);
  else
    weight_ = loader.weight(linear.weight);
  if (linear.bias) bias_ = loader.load(*linear.bias);
}

at::Tensor RowLinear::operator()(const at::Tensor& x, comm::Communicator& comm) const {
  if (comm.size() == 1 && !diagonal_) return weight_.linear(x, bias_);
  at::Tensor y = partial(x);
  if (comm.size() > 1) comm.all_reduce(y);
  return bias_.defined() ? y.add_(bias_) : y;
}

at::Tensor RowLinear::partial(const at::Tensor& x) const { return diagonal_ ? (*diagonal_)(x) : weight_.linear(x); }

LogitsHead::LogitsHead(const policy::LogitsSpec& head, Loader& loader)
    : softcap_(head.softcap), rows_(loader.range(head.linear.weight)) {
  if (head.linear.bias) bias_ = loader.weight(*head.linear.bias);
  weight_ = loader.weight(head.linear.weight);
  for (int rank = 0; rank < loader.partition().ranks(); ++rank)
    columns_.push_back(policy::rank_range(head.linear.weight, loader.partition(), rank).size());
}

at::Tensor LogitsHead::local(const at::Tensor& x) const {
  const at::Tensor bias = bias_.value();
  at::Tensor scores = weight_.linear(x, bias);
  return softcap_ > 0 ? scores.div_(softcap_).tanh_().mul_(softcap_) : scores;
}

at::Tensor LogitsHead::gathered(const at::Tensor& x, comm::Communicator& comm) const {
  const at::Tensor part = local(x);
  if (comm.size() == 1) return part;
  at::Tensor columns = comm.gatherv(part.t().contiguous(), columns_, 0);
  return comm.rank() == 0 ? columns.t() : at::Tensor();
}

}  // namespace pm::layers
