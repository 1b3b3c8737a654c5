// SPDX-License-Identifier: Apache-2.0
// Column-parallel and row-parallel linears, and the LM head.
#include <ATen/ATen.h>

#include <algorithm>

#include "worker/layers/adapters/adapter_slots.h"
#include "worker/layers/layers.h"
#include "worker/ops/linear.h"

namespace pm::layers {

Linear::Linear(const policy::Linear& linear, Loader& loader) : weight_(loader.load(linear.weight)) {
  weight_ = weight_.dim() == 1 ? weight_.unsqueeze(0) : weight_.flatten(1);
  if (linear.bias) bias_ = loader.load(*linear.bias);
  saved_ = loader.saved_site(linear.weight);
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  const auto base = [&] { return ops::linear(x, weight_, bias_); };
  return saved_ ? saved_->linear(x, at::kFloat, base) : base();
}

at::Tensor Linear::unrounded(const at::Tensor& x) const { return ops::unrounded_linear(x, weight_, bias_); }

at::Tensor Linear::product(const at::Tensor& x) const { return ops::linear(x, weight_, {}); }

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
  adapters_ = loader.adapter_site(weights);
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
    at::Tensor y = weight_.linear(x, added, x.scalar_type());
    if (adapters_) adapters_->add(x, y);
    return y;
  }
  std::vector<at::Tensor> all;
  for (const auto& [bias, weight] : singles_) {
    const at::Tensor added = bias.value();
    at::Tensor& made = all.emplace_back(weight(x));
    if (added.defined()) made.add_(added);
    made = made.to(x.scalar_type());
  }
  return all.size() == 1 ? all[0] : at::cat(all, 1);
}

RowLinear::RowLinear(const policy::Linear& linear, Loader& loader) {
  if (linear.weight.diagonal_blocks > 1) {
    diagonal_.emplace(linear.weight, loader);
  } else {
    const policy::Param* weight = &linear.weight;
    weight_ = loader.weight(*weight);
    adapters_ = loader.adapter_site({&weight, 1});
  }
  if (linear.bias) bias_ = loader.load(*linear.bias);
}

at::Tensor RowLinear::operator()(const at::Tensor& x, comm::Communicator& comm, at::ScalarType result) const {
  if (comm.size() == 1 && !diagonal_) {
    at::Tensor sum = weight_.linear(x, bias_, result);
    if (adapters_) adapters_->add(x, sum);
    return sum;
  }
  at::Tensor y = partial(x);
  if (comm.size() > 1) comm.all_reduce(y);
  if (bias_.defined()) y.add_(bias_);
  return comm.size() > 1 ? y : y.to(result);
}

at::Tensor RowLinear::partial(const at::Tensor& x) const {
  if (diagonal_) return (*diagonal_)(x);
  at::Tensor y = weight_.linear(x);
  if (adapters_) adapters_->add(x, y);
  return y;
}

GatheredLinear::GatheredLinear(const std::vector<const policy::Linear*>& linears, Loader& loader)
    : columns_(linears, loader) {
  const int ranks = loader.partition().ranks();
  std::vector<std::vector<int64_t>> places(linears.size());  // of each linear's outputs among those that are gathered
  int64_t before = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t count = 0;
    for (size_t i = 0; i < linears.size(); ++i) {
      const policy::Param& weight = linears[i]->weight;
      const int64_t rows = policy::local_shape(weight, policy::rank_range(weight, loader.partition(), rank)).front();
      for (int64_t row = 0; row < rows; ++row) places[i].push_back(before + count + row);
      count += rows;
    }
    counts_.push_back(count);
    before += count;
  }
  std::vector<int64_t> order;
  for (const std::vector<int64_t>& own : places) {
    outputs_.push_back(static_cast<int64_t>(own.size()));
    order.insert(order.end(), own.begin(), own.end());
  }
  if (ranks > 1 && linears.size() > 1) order_ = at::tensor(order, at::kLong).to(loader.device());
}

std::vector<at::Tensor> GatheredLinear::operator()(const at::Tensor& x, comm::Communicator& comm) const {
  at::Tensor rows = columns_(x).t();
  if (comm.size() > 1) rows = comm.all_gatherv(rows.contiguous(), counts_);
  if (order_.defined()) rows = at::index_select(rows, 0, order_);
  std::vector<at::Tensor> all;
  int64_t first = 0;
  for (const int64_t outputs : outputs_) {
    all.push_back(rows.narrow(0, first, outputs).t().contiguous());
    first += outputs;
  }
  return all;
}

LogitsHead::LogitsHead(const policy::Linear& linear, Loader& loader) : rows_(loader.range(linear.weight)) {
  if (linear.bias) bias_ = loader.weight(*linear.bias);
  weight_ = loader.weight(linear.weight);
  saved_ = loader.saved_site(linear.weight);
  for (int rank = 0; rank < loader.partition().ranks(); ++rank)
    columns_.push_back(policy::rank_range(linear.weight, loader.partition(), rank).size());
}

LogitsHead::LogitsHead(const policy::LogitsSpec& head, Loader& loader) : LogitsHead(head.linear, loader) {
  softcap_ = head.softcap;
  if (head.concat) concat_ = loader.weight(*head.concat);
}

at::Tensor LogitsHead::local(const at::Tensor& x) const {
  const at::Tensor bias = bias_.value();
  at::Tensor scores;
  if (concat_.defined()) {
    const int64_t first = weight_.size(1), rest = concat_.size(1);
    scores = weight_.linear(x.narrow(1, 0, first).contiguous(), bias);
    scores.add_(concat_.linear(x.narrow(1, first, rest).contiguous()));
  } else {
    const auto base = [&] { return weight_.linear(x, bias); };
    scores = saved_ ? saved_->linear(x, at::kFloat, base) : base();
  }
  return softcap_ > 0 ? scores.div_(softcap_).tanh_().mul_(softcap_) : scores;
}

ops::BestScores LogitsHead::best(const at::Tensor& x) const { return ops::best_scores(local(x)); }

at::Tensor LogitsHead::gathered(const at::Tensor& x, comm::Communicator& comm) const {
  const at::Tensor part = local(x);
  if (comm.size() == 1) return part;
  at::Tensor columns = comm.gatherv(part.t().contiguous(), columns_, 0);
  return comm.rank() == 0 ? columns.t() : at::Tensor();
}

}  // namespace pm::layers
