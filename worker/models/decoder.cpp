// See decoder.h.
#include "worker/models/decoder.h"

#include <ATen/ATen.h>

#include "worker/base/error.h"

namespace pm::models {

namespace {

const policy::Stack& only_stack(const policy::Model& model) {
  Decoder::check(model);
  return model.stacks[0];
}

template <typename Part, typename Description>
std::optional<Part> optionally(const std::optional<Description>& description, layers::Loader& loader) {
  return description ? std::optional<Part>(std::in_place, *description, loader) : std::nullopt;
}

}  // namespace

void Decoder::check(const policy::Model& model) {
  auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::Model, "UnknownArchitecture",
                model.architecture + " (" + model.model_type + ") " + what + "; `families` lists what runs");
  };
  if (model.stacks.size() != 1 || !model.stacks[0].input.token) refuse("is not a decoder-only model, the only topology that this version runs");
  const policy::Stack& stack = model.stacks[0];
  if (stack.input.projection || !stack.input.tables.empty()) refuse("has an input that this version does not run");
  if (stack.input.position == policy::PositionKind::Sinusoidal) refuse("has sinusoidal positions, which this version does not run");
  for (const policy::Layer& layer : stack.layers) {
    const policy::Attention& attention = layer.attention;
    if (attention.mask != policy::Mask::Causal) refuse("has attention that is not causal, which this version does not run");
    if (layer.cross || attention.rotary || attention.alibi || attention.bucket_bias) {
      refuse("has an attention option (cross, rotary, alibi or bucket bias) that this version does not run");
    }
  }
  for (const policy::Head& head : model.heads) {
    if (!head.logits || head.dense || head.norm || head.classes) refuse("has the head \"" + head.name + "\", which this version does not run");
  }
}

Decoder::Layer::Layer(const policy::Layer& layer, layers::Loader& loader)
    : order(layer.order),
      attention_norm(optionally<layers::Norm>(layer.attention.norm, loader)),
      mlp_norm(optionally<layers::Norm>(layer.mlp.norm, loader)),
      attention(layer.attention, loader),
      mlp(layer.mlp, loader) {}

at::Tensor Decoder::Layer::operator()(const at::Tensor& x, const layers::Batch& batch, at::Tensor& keys, at::Tensor& values,
                                      comm::Communicator& comm) const {
  auto norm = [](const std::optional<layers::Norm>& norm, const at::Tensor& y) { return norm ? (*norm)(y) : y; };
  switch (order) {
    case policy::Order::Pre: {
      const at::Tensor y = x + attention(norm(attention_norm, x), batch, keys, values, comm);
      return y + mlp(norm(mlp_norm, y), comm);
    }
    case policy::Order::Post: {
      const at::Tensor y = norm(attention_norm, x + attention(x, batch, keys, values, comm));
      return norm(mlp_norm, y + mlp(y, comm));
    }
    case policy::Order::Parallel: {
      const at::Tensor y = norm(attention_norm, x);
      return x + attention(y, batch, keys, values, comm) + mlp(mlp_norm ? (*mlp_norm)(x) : y, comm);
    }
  }
  return x;
}

Decoder::Decoder(const policy::Model& model, layers::Loader& loader)
    : scale_(only_stack(model).input.scale),
      token_(*model.stacks[0].input.token, loader),
      position_offset_(model.stacks[0].input.position_offset),
      input_norm_(optionally<layers::Norm>(model.stacks[0].input.norm, loader)),
      output_norm_(optionally<layers::Norm>(model.stacks[0].output.norm, loader)) {
  const policy::Stack& stack = model.stacks[0];
  if (stack.input.positions) positions_ = loader.load(*stack.input.positions);
  layers_.reserve(stack.layers.size());
  for (const policy::Layer& layer : stack.layers) layers_.emplace_back(layer, loader);
  if (!model.heads.empty()) logits_.emplace(model.heads[0], loader);
}

at::Tensor Decoder::embed(const layers::Batch& batch, comm::Communicator& comm) const {
  at::Tensor x = token_(batch.tokens, comm);
  if (scale_ != 1) x = x * scale_;
  if (positions_.defined()) x = x + at::index_select(positions_, 0, batch.positions + position_offset_);
  return input_norm_ ? (*input_norm_)(x) : x;
}

at::Tensor Decoder::forward(const layers::Batch& batch, layers::KvCache& cache, comm::Communicator& comm) const {
  auto keep = [&](const at::Tensor& x) { if (batch.capture && batch.capture->hidden_states) batch.capture->hidden.push_back(x); };
  at::Tensor x = embed(batch, comm);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    keep(x);
    x = layers_[layer](x, batch, cache.keys(layer), cache.values(layer), comm);
  }
  if (output_norm_) x = (*output_norm_)(x);
  keep(x);
  return x;
}

}  // namespace pm::models
