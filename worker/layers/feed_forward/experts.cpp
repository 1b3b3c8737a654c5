// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "worker/layers/feed_forward/mlp.h"

namespace pm::layers {

namespace {

constexpr double least_sum = 1e-20;  // of weights: a token whose scores are all 0 gets none of any expert

std::vector<GatedMlp> make_experts(const std::vector<policy::GatedMlp>& experts, Loader& loader) {
  std::vector<GatedMlp> all;
  all.reserve(experts.size());
  for (const policy::GatedMlp& expert : experts) all.emplace_back(expert, loader);
  return all;
}

}  // namespace

Router::Router(const policy::Router& router, Loader& loader) : policy_(router), linear_(router.linear, loader) {
  if (router.norm) norm_.emplace(*router.norm, loader);
  if (router.expert_factors) expert_factors_ = loader.load(*router.expert_factors).to(at::kFloat);
  if (router.choice_bias) choice_bias_ = loader.load(*router.choice_bias).to(at::kFloat);
}

at::Tensor Router::of_kept_groups(const at::Tensor& scores) const {
  const int64_t tokens = scores.size(0), size = scores.size(1) / policy_.groups,
                counted = policy_.group_score == policy::GroupScore::Best ? 1 : 2;
  const at::Tensor groups = scores.view({tokens, policy_.groups, size}),
                   best = std::get<0>(at::topk(groups, std::min(counted, size), 2)).sum(2),
                   kept = std::get<1>(at::topk(best, policy_.groups_kept, 1)),
                   left_out = at::ones_like(best, best.options().dtype(at::kBool)).scatter_(1, kept, 0);
  return groups.masked_fill(left_out.unsqueeze(2), -std::numeric_limits<double>::infinity()).view_as(scores);
}

/// Chooses the largest logit, then the largest of the others. The weight of each is its share in the softmax over those
/// that were left when it was chosen and lie near it.
Router::Choice Router::of_sparse_mixer(const at::Tensor& logits) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  at::Tensor left = logits;
  std::vector<at::Tensor> chosen, weights;
  for (int64_t i = 0; i < policy_.per_token; ++i) {
    const auto [largest, best] = at::max(left, 1, /*keepdim=*/true);
    const at::Tensor far = ((largest - logits) / at::maximum(logits.abs(), largest)) > 2 * policy_.jitter;
    chosen.push_back(best);
    weights.push_back(at::gather(at::softmax(left.masked_fill(far, -infinity), 1), 1, best));
    left = left.scatter(1, best, -infinity);
  }
  return {.experts = at::cat(chosen, 1), .weights = at::cat(weights, 1)};
}

Router::Choice Router::operator()(const at::Tensor& x, const at::Tensor& residual) const {
  using policy::RouterScores;
  at::Tensor read = norm_ ? (*norm_)(residual, at::kFloat) : x.to(at::kFloat);
  if (policy_.scale_input != 1) read = read * policy_.scale_input;
  const at::Tensor logits = linear_.unrounded(read);
  if (policy_.scores == RouterScores::SparseMixer) return of_sparse_mixer(logits);
  const at::Tensor scores = policy_.scores == RouterScores::Softmax   ? at::softmax(logits, 1)
                            : policy_.scores == RouterScores::Sigmoid ? at::sigmoid(logits)
                                                                      : logits;
  at::Tensor wanted = choice_bias_.defined() ? scores + choice_bias_ : scores;
  if (policy_.groups_kept < policy_.groups) wanted = of_kept_groups(wanted);
  const at::Tensor chosen = std::get<1>(at::topk(wanted, policy_.per_token, 1));
  at::Tensor weights = at::gather(scores, 1, chosen);
  if (policy_.scores == RouterScores::SoftmaxOfChosen) weights = at::softmax(weights, 1);
  if (policy_.normalise) weights = weights / weights.sum(1, /*keepdim=*/true).clamp_min(least_sum);
  if (policy_.factor != 1) weights = weights * policy_.factor;
  if (expert_factors_.defined())
    weights = weights * at::index_select(expert_factors_, 0, chosen.flatten()).view_as(chosen);
  return {.experts = chosen, .weights = weights};
}

Experts::Experts(const policy::Experts& experts, Loader& loader)
    : router_(experts.router, loader),
      experts_(make_experts(experts.experts, loader)),
      weigh_input_(experts.weigh_input),
      shared_factor_(experts.shared_factor),
      adds_biases_(loader.rank() == 0) {
  if (experts.shared) shared_.emplace(*experts.shared, loader);
  if (experts.shared_gate) shared_gate_.emplace(*experts.shared_gate, loader);
}

at::Tensor Experts::of_expert(const GatedMlp& expert, const at::Tensor& x) const {
  at::Tensor y = expert.down().partial(expert.inner(x));
  if (adds_biases_ && expert.down().bias().defined()) y.add_(expert.down().bias());
  return y;
}

at::Tensor Experts::partial(const at::Tensor& x, const at::Tensor& residual) const {
  const auto [experts, weights] = router_(x, residual);
  const int64_t tokens = x.size(0), per_token = experts.size(1);
  const at::Tensor on_host = experts.cpu(), flat_weights = weights.flatten();
  const auto* chosen = on_host.const_data_ptr<int64_t>();
  std::vector<std::vector<int64_t>> rows(experts_.size()), places(experts_.size());  // of each expert
  for (int64_t place = 0; place < tokens * per_token; ++place) {
    const auto expert = static_cast<size_t>(chosen[place]);
    rows[expert].push_back(place / per_token);
    places[expert].push_back(place);
  }
  at::Tensor sum = at::zeros({tokens, x.size(1)}, x.options().dtype(at::kFloat));
  for (size_t i = 0; i < experts_.size(); ++i) {
    // Ranks that gather weights together do so in one order, whichever experts their tokens choose.
    if (rows[i].empty() && !experts_[i].is_gathered()) continue;
    const at::Tensor row = at::tensor(rows[i], at::kLong).to(x.device()),
                     place = at::tensor(places[i], at::kLong).to(x.device());
    const at::Tensor weight = at::index_select(flat_weights, 0, place).unsqueeze(1),
                     read = tokens == 1 && !rows[i].empty() ? x : at::index_select(x, 0, row);
    at::Tensor y = of_expert(experts_[i], weigh_input_ ? (read * weight).to(x.scalar_type()) : read);
    if (!weigh_input_) y.mul_(weight);
    sum.index_add_(0, row, y);
  }
  if (!shared_) return sum;
  at::Tensor y = of_expert(*shared_, x);
  if (shared_gate_) y.mul_(at::sigmoid((*shared_gate_)(x.to(at::kFloat))));
  if (shared_factor_ != 1) y.mul_(shared_factor_);
  return sum.add_(y);
}

at::Tensor Experts::operator()(const at::Tensor& x, const at::Tensor& residual, comm::Communicator& comm,
                               at::ScalarType result) const {
  at::Tensor sum = partial(x, residual);
  if (comm.size() > 1) comm.all_reduce(sum);
  return comm.size() > 1 ? sum : sum.to(result);
}

}  // namespace pm::layers
