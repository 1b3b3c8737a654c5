// SPDX-License-Identifier: Apache-2.0
#include "worker/models/two_stream_layer.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace pm::models {

namespace {

std::optional<layers::Norm> optional_norm(const std::optional<policy::Norm>& norm, layers::Loader& loader) {
  return norm ? std::optional<layers::Norm>(std::in_place, *norm, loader) : std::nullopt;
}

}  // namespace

TwoStreamLayer::TwoStreamLayer(const policy::Layer& layer, layers::ActivationTypes types, layers::Loader& loader)
    : types_(types),
      across_(layer.co_attention->across, loader),
      across_norm_(optional_norm(layer.co_attention->across.norm, loader)),
      attentions_{layers::Attention(layer.attention, loader), layers::Attention(layer.co_attention->attention, loader)},
      attention_norms_{optional_norm(layer.attention.norm, loader),
                       optional_norm(layer.co_attention->attention.norm, loader)},
      mlps_{layers::Mlp(layer.mlp, loader), layers::Mlp(layer.co_attention->mlp, loader)},
      mlp_norms_{optional_norm(layer.mlp.norm, loader), optional_norm(layer.co_attention->mlp.norm, loader)} {}

template <typename Partial>
void TwoStreamLayer::step(layers::Residual& state, int64_t first, const std::array<at::Tensor, 2>& biases,
                          const Norms& norms, const Partial& partial, comm::Communicator& comm) const {
  const at::Tensor x = state.sum();
  const std::array<at::Tensor, 2> rows{x.narrow(0, 0, first), x.narrow(0, first, x.size(0) - first)};
  const at::Tensor own = partial(0, rows[0]);  // before the second: weights are used in the order of the members
  at::Tensor sum = at::cat({own, partial(1, rows[1])});
  if (comm.size() > 1) comm.all_reduce(sum);
  std::vector<at::Tensor> made;
  for (size_t stream = 0; stream < 2; ++stream) {
    at::Tensor added = sum.narrow(0, stream == 0 ? 0 : first, rows[stream].size(0));
    if (biases[stream].defined()) added.add_(biases[stream]);
    layers::Residual both(rows[stream]);
    both.add(std::move(added));
    made.push_back(both.normed(norms[stream], types_.residual));
  }
  state = layers::Residual(at::cat(made));
}

void TwoStreamLayer::operator()(layers::Residual& state, const layers::Batch& batch, comm::Communicator& comm) const {
  const at::Tensor seen = across_.self(state.sum(), {}, batch, {}, {}, comm);
  if (batch.capture && batch.capture->attentions)
    batch.capture->attention.back().resize(batch.joined[0].sequences.spans.size());
  state.add(across_.out()(seen, comm, types_.residual));
  state = layers::Residual(state.normed(across_norm_, types_.residual));
  const ops::SequenceSpan& last = batch.joined[0].sequences.spans.back();
  const int64_t first = last.first + last.tokens;
  step(
      state, first, {attentions_[0].out().bias(), attentions_[1].out().bias()}, attention_norms_,
      [&](size_t stream, const at::Tensor& x) {
        const layers::Attention& attention = attentions_[stream];
        return attention.out().partial(attention.self(x, {}, batch.joined[stream], {}, {}, comm));
      },
      comm);
  step(
      state, first, {mlps_[0].bias(), mlps_[1].bias()}, mlp_norms_,
      [&](size_t stream, const at::Tensor& x) { return mlps_[stream].partial(x); }, comm);
}

}  // namespace pm::models
