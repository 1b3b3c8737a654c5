// SPDX-License-Identifier: Apache-2.0
#include "worker/models/stack.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace pm::models {

namespace {

template <typename Part, typename Description>
std::optional<Part> optionally(const std::optional<Description>& description, layers::Loader& loader) {
  return description ? std::optional<Part>(std::in_place, *description, loader) : std::nullopt;
}

at::Tensor normed(const std::optional<layers::Norm>& norm, const at::Tensor& x, at::ScalarType result) {
  return norm ? (*norm)(x, result) : x;
}

/// Multiplies what a block made, which nothing else reads.
at::Tensor scaled(at::Tensor x, double factor) { return factor == 1 ? x : x.mul_(factor); }

/// Returns the types of a stack's activations. Where transformers keeps the last linear of a block in fp32 in a model
/// of F16, because its products leave the range of F16 (T5), the sums that they are added to are fp32 as well.
layers::ActivationTypes activation_types(const policy::Stack& stack, const layers::Loader& loader) {
  const at::ScalarType type = loader.activation_type();
  const bool leaves_f16 = std::any_of(stack.layers.begin(), stack.layers.end(),
                                      [](const policy::Layer& layer) { return layer.mlp.down().weight.f32_if_f16; });
  return {.product = type, .residual = type == at::kHalf && leaves_f16 ? at::kFloat : type};
}

/// Returns whether a layer adds the states that come to the layer `number`.
bool is_added_later(const policy::Stack& stack, size_t number) {
  return std::any_of(stack.layers.begin(), stack.layers.end(), [&](const policy::Layer& layer) {
    return layer.upsampling && layer.upsampling->added_layer == static_cast<int64_t>(number);
  });
}

}  // namespace

std::vector<Stack::Feed> Stack::feeds_of(const std::vector<policy::Mlp>& mlps, layers::Loader& loader) {
  std::vector<Feed> feeds;
  feeds.reserve(mlps.size());
  for (const policy::Mlp& mlp : mlps)
    feeds.push_back({layers::Mlp(mlp, loader), optionally<layers::Norm>(mlp.norm, loader)});
  return feeds;
}

Stack::Beside::Beside(const policy::BesideMlp& beside, layers::Loader& loader)
    : first_norm(optionally<layers::Norm>(beside.first_norm, loader)),
      norm(optionally<layers::Norm>(beside.mlp.norm, loader)),
      mlp(beside.mlp, loader),
      post_norm(optionally<layers::Norm>(beside.mlp.post_norm, loader)) {}

Stack::Layer::Layer(const policy::Layer& layer, int64_t own, layers::ActivationTypes activations,
                    layers::Loader& loader, layers::RotaryTable& rotaries)
    : types(activations),
      order(layer.order),
      residual_normed(layer.residual_normed),
      residual_multiplier(layer.residual_multiplier),
      attention_norm(optionally<layers::Norm>(layer.attention.norm, loader)),
      mlp_norm(optionally<layers::Norm>(layer.mlp.norm, loader)),
      attention_post_norm(optionally<layers::Norm>(layer.attention.post_norm, loader)),
      mlp_post_norm(optionally<layers::Norm>(layer.mlp.post_norm, loader)),
      input_bottleneck(optionally<layers::InputBottleneck>(layer.bottleneck, loader)),
      rotary(layer.attention.rotary ? std::optional(rotaries.add(*layer.attention.rotary)) : std::nullopt),
      attention(layer.recurrent || layer.attention.latent || !layer.has_mixer
                    ? std::nullopt
                    : std::optional<layers::Attention>(std::in_place, layer.attention, loader)),
      recurrent(layer.recurrent ? layers::make_recurrent(*layer.recurrent, loader) : nullptr),
      latent_attention(layer.attention.latent
                           ? std::optional<layers::LatentAttention>(std::in_place, layer.attention, loader)
                           : std::nullopt),
      cross(layer.cross ? std::optional(Cross{layers::Attention(*layer.cross, loader),
                                              optionally<layers::Norm>(layer.cross->norm, loader)})
                        : std::nullopt),
      stacked(feeds_of(layer.stacked, loader)),
      mlp(layer.has_mlp ? std::optional<layers::Mlp>(std::in_place, layer.mlp, loader) : std::nullopt),
      beside(optionally<Beside>(layer.beside, loader)),
      input(optionally<layers::LayerInput>(layer.input, loader)),
      factor(layer.factor ? loader.load(*layer.factor).to(at::kFloat).reshape({}) : at::Tensor()),
      number(own),
      output_bottleneck(optionally<layers::OutputBottleneck>(layer.bottleneck, loader)),
      branch(optionally<layers::ConvolutionBranch>(layer.branch, loader)) {}

/// Returns what tokens make of each other, before the output projection.
at::Tensor Stack::Layer::mixed(const at::Tensor& x, const at::Tensor& values, const layers::Batch& batch,
                               const ops::Rotation& rotation, layers::LayerCache cache,
                               comm::Communicator& comm) const {
  if (latent_attention) return (*latent_attention)(x, batch, rotation, cache.keys, comm);
  if (!recurrent) return attention->self(x, values, batch, rotation, cache, comm);
  return (*recurrent)(x, batch, cache.state, comm);
}

/// Returns what the last feed-forward block makes of the normed state, and the block beside it of the state.
at::Tensor Stack::Layer::fed_forward(const at::Tensor& normed_state, layers::Residual& state,
                                     comm::Communicator& comm) const {
  const at::Tensor made = (*mlp)(normed_state, comm, types.residual, state.sum());
  if (!beside) return made;
  const at::Tensor read = beside->norm ? (*beside->norm)(state.sum(), types.product) : state.sum().to(types.product),
                   other = beside->mlp(read, comm, types.residual, state.sum());
  return normed(beside->first_norm, made, types.residual) + normed(beside->post_norm, other, types.residual);
}

/// Computes x + attn(norm(x)) + mlp(norm'(x)); one all-reduce adds both partial sums.
void Stack::Layer::parallel(layers::Residual& state, const layers::Batch& batch, const ops::Rotation& rotation,
                            layers::LayerCache cache, comm::Communicator& comm) const {
  const at::Tensor y = state.normed(attention_norm, types.product),
                   z = mlp_norm ? state.normed(mlp_norm, types.product) : y;
  at::Tensor sum = out().partial(mixed(y, {}, batch, rotation, cache, comm));
  sum.add_(mlp->partial(z));
  if (comm.size() > 1) comm.all_reduce(sum);
  for (const at::Tensor& bias : {out().bias(), mlp->bias()}) {
    if (bias.defined()) sum.add_(bias);
  }
  state.add(scaled(std::move(sum), residual_multiplier));
}

void Stack::Layer::operator()(layers::Residual& state, const layers::Batch& batch, const ops::Rotation& rotation,
                              layers::LayerCache cache, const layers::Source* source, comm::Communicator& comm) const {
  if (order == policy::Order::Parallel) return parallel(state, batch, rotation, cache, comm);
  // norms make new tensors: this one stays
  const at::Tensor before = branch || input_bottleneck ? state.sum() : at::Tensor();
  layers::InputBottleneck::States inside;
  if (input_bottleneck) {
    inside = (*input_bottleneck)(before.to(at::kFloat), comm);
    for (at::Tensor* read : {&inside.attended, &inside.values}) *read = read->to(types.product);
    state = layers::Residual(inside.narrow.to(types.residual));
  }
  const std::optional<layers::Norm> none;
  const auto block = [&](const std::optional<layers::Norm>& norm, const std::optional<layers::Norm>& post, auto run) {
    if (order == policy::Order::Post) {
      state.add(scaled(run(state.sum()), residual_multiplier));  // the block's result is not shared
      state = layers::Residual(state.normed(norm, types.residual));
    } else {
      const at::Tensor y = state.normed(norm, types.product);
      if (residual_normed) state = layers::Residual(y);
      state.add(scaled(normed(post, run(y), types.residual), residual_multiplier));
    }
  };
  const at::Tensor& positions = batch.added_positions;
  const auto mix = [&](const at::Tensor& y) {
    const at::Tensor& read = input_bottleneck ? inside.attended : y;
    const at::Tensor heads = positions.defined() ? mixed(read + positions, read, batch, rotation, cache, comm)
                                                 : mixed(read, inside.values, batch, rotation, cache, comm);
    return out()(heads, comm, types.residual);
  };
  if (!attention && !latent_attention && batch.capture && batch.capture->attentions)
    batch.capture->attention.emplace_back();  // there are none
  if (attention || latent_attention || recurrent) block(attention_norm, attention_post_norm, mix);
  if (cross)
    block(cross->norm, none, [&](const at::Tensor& y) {
      const at::Tensor read = positions.defined() ? y + positions : y;
      return cross->attention.out()(cross->attention.cross(read, batch, *source, cache, comm), comm, types.residual);
    });
  for (const Feed& feed : stacked)
    block(feed.norm, none, [&](const at::Tensor& y) { return feed.mlp(y, comm, types.residual); });
  if (mlp) block(mlp_norm, mlp_post_norm, [&](const at::Tensor& y) { return fed_forward(y, state, comm); });
  if (input) {
    const at::Tensor own = batch.layer_inputs.select(1, this->number);
    state.add((*input)(state.sum(), own, types.residual));
  }
  if (factor.defined()) state = layers::Residual(state.sum() * factor);
  if (output_bottleneck) {
    const at::Tensor wide = (*output_bottleneck)(state.sum().to(at::kFloat), before.to(at::kFloat), comm);
    state = layers::Residual(wide.to(types.residual));
  }
  if (branch) {
    const at::Tensor sum = (*branch)(before.to(at::kFloat), state.sum().to(at::kFloat), batch, comm);
    state = layers::Residual(sum.to(types.residual));
  }
}

at::Tensor Stack::Layer::keyed(const layers::MemoryRows& rows, const at::Tensor& memories,
                               layers::Residual& state) const {
  const at::Tensor all = rows.beside(memories, state.sum());
  return order == policy::Order::Pre ? normed(attention_norm, all, types.product) : all.to(types.product);
}

Stack::Stack(const policy::Stack& stack, Range layers, layers::Loader& loader)
    : policy_(stack),
      range_(layers),
      ends_(layers.end == static_cast<int64_t>(stack.layers.size())),
      resizes_(policy::resizes_rows(stack)),
      types_(activation_types(stack, loader)),
      rotaries_(loader.device()),
      raw_states_(stack.output.raw_states) {
  if (range_.begin == 0 && stack.input.quantized)
    quantized_input_.emplace(stack.input, loader);
  else if (range_.begin == 0 && stack.joins.empty())
    input_.emplace(stack, loader);
  if (input_ && stack.input.layer_inputs) layer_inputs_.emplace(*stack.input.layer_inputs, loader);
  if (input_ && stack.input.latents) latents_.emplace(*stack.input.latents, types_, loader);
  if (range_.size() > 0) {
    const auto& content = stack.layers[static_cast<size_t>(range_.begin)].attention.relative_content;
    if (content) relative_.emplace(*content, stack.hidden, loader);
    if (const auto& buckets = stack.layers[static_cast<size_t>(range_.begin)].attention.content_buckets)
      buckets_ = {buckets->num_buckets, buckets->max_distance};
  }
  const bool usual = stack.joins.empty() && !stack.is_reversible() && !stack.input.quantized;
  layers_.reserve(static_cast<size_t>(usual ? range_.size() : 0));
  two_streams_.reserve(static_cast<size_t>(stack.joins.empty() ? 0 : range_.size()));
  for (int64_t number = range_.begin; number < range_.end; ++number) {
    const policy::Layer& layer = stack.layers[static_cast<size_t>(number)];
    if (layer.order == policy::Order::Reversible)
      reversible_.emplace_back(layer, types_, loader);
    else if (layer.attention.quantized)
      quantized_.emplace_back(layer, loader);
    else if (layer.co_attention)
      two_streams_.emplace_back(layer, types_, loader);
    else
      layers_.emplace_back(layer, number, types_, loader, rotaries_);
  }
  if (!ends_) return;
  if (stack.output.queries) queries_.emplace(*stack.output.queries, types_, loader);
  norm_ = optionally<layers::Norm>(stack.output.norm, loader);
  projection_ = optionally<layers::Linear>(stack.output.projection, loader);
  cross_projection_ = optionally<layers::Linear>(stack.output.cross_projection, loader);
  if (const auto& projector = stack.output.image_projector) {
    const std::vector<int64_t>& patch = stack.input.projection->weight.shape;
    image_projector_.emplace(*projector, std::array{stack.input.image[0] / patch[2], stack.input.image[1] / patch[3]},
                             loader);
    for (const policy::DeepProjector& deep : stack.output.deep_projectors)
      deep_projectors_.emplace_back(deep.projector, std::array<int64_t, 2>{}, loader);
  }
  if (const auto& pooler = stack.output.pooler) {
    pooler_norm_ = optionally<layers::Norm>(pooler->norm, loader);
    pooler_dense_ = optionally<layers::Linear>(pooler->dense, loader);
    pooler_activation_ = pooler->activation;
  }
}

Stack::Rows Stack::rows_at_begin(const layers::Batch& batch) const {
  if (!resizes_) return {};
  const layers::PooledRows tokens(batch.sequences.spans);
  return {tokens, layers::rows_before(policy_, range_.begin, tokens)};
}

/// Makes the batch's sequences those of a layer with these queries and keys.
void Stack::set_rows(const layers::PooledRows& queries, const layers::PooledRows& keys, layers::Batch& batch,
                     at::Device device, comm::Communicator& comm) const {
  batch.sequences = {.spans = queries.spans, .metadata = {}};
  for (size_t i = 0; i < keys.spans.size(); ++i) {
    batch.sequences.spans[i].keys = keys.spans[i].keys;
    batch.sequences.spans[i].key_row = keys.spans[i].key_row;
  }
  if (relative_) batch.relative = (*relative_)(queries, keys, batch, device, comm);
}

/// Upsamples and pools the state that comes to a layer, as the policy says, and sets the rows of its blocks.
void Stack::resize(size_t layer, Rows& rows, layers::Residual& state, layers::Batch& batch,
                   comm::Communicator& comm) const {
  const policy::Layer& one = policy_.layers[layer];
  const at::Device device = state.sum().device();
  batch.keyed.reset();
  if (one.upsampling) {
    const at::Tensor wide = layers::upsample_states(*one.upsampling, rows.here, rows.tokens, state.sum());
    state = layers::Residual((wide + batch.skipped).to(types_.residual));
    batch.skipped.reset();
    rows.here = rows.tokens;
  }
  if (!one.pooling) {
    const bool begins = layer == static_cast<size_t>(range_.begin);
    if (one.upsampling || begins || policy_.layers[layer - 1].pooling)  // the keys of a layer that pools are others
      set_rows(rows.here, rows.here, batch, device, comm);
    return;
  }
  const layers::RowPairs pairs = layers::pool_rows(*one.pooling, rows.here);
  const at::Tensor pooled = layers::pool_states(one.pooling->kind, pairs, state.sum()).to(types_.residual);
  if (one.pooling->queries_only) batch.keyed = state.sum();
  set_rows(pairs.rows, one.pooling->queries_only ? rows.here : pairs.rows, batch, device, comm);
  state = layers::Residual(pooled);
  rows.here = pairs.rows;
}

/// Makes the batch's rows those of latents. Returns the latents that have read the input's rows `x`, where the stack
/// begins, else the states that came in.
at::Tensor Stack::with_latents(at::Tensor x, layers::Batch& batch, at::Device device, comm::Communicator& comm) const {
  const std::vector<ops::SequenceSpan> rows = std::move(batch.sequences.spans);
  const int64_t count = policy_.input.latents->vectors.shape[0];
  batch.sequences = {.spans = layers::equal_spans(rows.size(), count), .metadata = {}};
  if (!latents_) return x;
  if (policy_.output.queries && !policy_.output.queries->vectors) batch.skipped = x;
  const at::Tensor vectors = latents_->vectors(static_cast<int64_t>(rows.size()), device, comm);
  return latents_->block(vectors, x, layers::crossed(batch.sequences.spans, rows), batch, comm);
}

/// Returns what reads the states of the latents: a state for each query, or for each of the rows that `input` has.
at::Tensor Stack::queried(const at::Tensor& states, const std::vector<ops::SequenceSpan>& input, layers::Batch& batch,
                          comm::Communicator& comm) const {
  const auto sequences = static_cast<int64_t>(input.size());
  const auto& vectors = queries_->vectors;
  const at::Tensor queries = vectors ? (*vectors)(sequences, states.device(), comm) : std::exchange(batch.skipped, {});
  const std::vector<ops::SequenceSpan> spans = vectors ? layers::equal_spans(input.size(), vectors->count()) : input;
  return queries_->block(queries, states, layers::crossed(spans, batch.sequences.spans), batch, comm);
}

/// Runs layers of two residual streams on what both begin with [tokens, hidden], or on both side by side [tokens, 2 x
/// hidden]; returns both. Hidden states are those of the second.
at::Tensor Stack::run_reversible(const at::Tensor& x, const layers::Batch& batch, layers::KvCache* cache,
                                 comm::Communicator& comm) const {
  const bool begins = range_.begin == 0;
  const int64_t width = begins ? x.size(1) : x.size(1) / 2;
  layers::Residual first(x.narrow(1, 0, width).contiguous()),
      second(begins ? x : x.narrow(1, width, width).contiguous());
  const auto keep = [&] {
    if (batch.capture && batch.capture->hidden_states) batch.capture->hidden.push_back(second.sum().to(at::kFloat));
  };
  for (size_t layer = 0; layer < reversible_.size(); ++layer) {
    keep();
    reversible_[layer](first, second, batch,
                       cache ? layers::LayerCache{&cache->keys(layer), &cache->values(layer)} : layers::LayerCache{},
                       comm);
  }
  if (ends_) keep();
  return at::cat({first.sum(), second.sum()}, 1);
}

/// Returns whether a layer of a later stage reads the keys and values of this one.
bool Stack::is_read_later(int64_t layer) const {
  return std::any_of(policy_.layers.begin() + range_.end, policy_.layers.end(),
                     [&](const policy::Layer& later) { return later.attention.reuses == layer; });
}

/// Adds the rows that stand behind this layer to the tokens of images.
void Stack::add_deep_images(int64_t layer, const layers::PlacedRows& images, layers::Residual& state) const {
  if (!policy_.input.images || layer < 0 || layer >= policy_.input.images->deepstack || !images.places.defined())
    return;
  const at::Tensor rows = images.values.narrow(1, (1 + layer) * policy_.hidden, policy_.hidden);
  const at::Tensor& sum = state.sum();
  state.add(at::zeros_like(sum).index_copy_(0, images.places, rows.to(sum.scalar_type())));
}

/// Writes keys and values that an earlier stage made to the copies that layers of this one read.
void Stack::take_shared_keys(const layers::Batch& batch, layers::KvCache* cache) const {
  for (const auto& [source, made] : *batch.shared_keys) {
    for (int64_t number = range_.begin; number < range_.end; ++number) {
      if (policy_.layers[static_cast<size_t>(number)].attention.reuses != source) continue;
      const auto layer = static_cast<size_t>(number - range_.begin);
      ops::write_kv(made.first.to(types_.product), made.second.to(types_.product), batch.slots, cache->keys(layer),
                    cache->values(layer));
      break;  // the others have the same tensors
    }
  }
}

at::Tensor Stack::operator()(at::Tensor x, layers::Batch& batch, layers::KvCache* cache, layers::Source* source,
                             comm::Communicator& comm) const {
  const bool keeps = batch.capture && batch.capture->hidden_states && reversible_.empty();
  const auto keep = [&](const at::Tensor& states) { batch.capture->hidden.push_back(states.to(at::kFloat)); };
  if (quantized_input_) x = (*quantized_input_)(batch, comm);
  if (input_) {
    x = (*input_)(batch, comm);
    if (const layers::PlacedRows& images = batch.images; images.places.defined())
      x = x.index_copy(0, images.places, images.values.narrow(1, 0, x.size(1)).to(x.scalar_type()));
    batch.added_positions = input_->added_positions(batch, comm);
  }
  if (layer_inputs_) batch.layer_inputs = (*layer_inputs_)(batch.tokens, x, comm);
  if (cache && !batch.state_slots.empty())
    cache->states().reserve(1 + *std::max_element(batch.state_slots.begin(), batch.state_slots.end()));
  const std::vector<ops::SequenceSpan> of_input = batch.sequences.spans;
  if (policy_.input.latents) {
    const at::Device device = x.device();
    x = with_latents(std::exchange(x, {}), batch, device, comm);
  }
  const at::Tensor positions = batch.added_positions;  // handed on in F32
  if (positions.defined()) batch.added_positions = positions.to(types_.product);
  if (range_.size() > 0 && !(batch.capture && batch.capture->attentions)) {  // what is captured has no kernel
    ops::make_attention_metadata(batch.sequences, x.device());
    if (!batch.patch_windows.spans.empty()) ops::make_attention_metadata(batch.patch_windows, x.device());
    if (source) ops::make_attention_metadata(source->sequences, x.device());
  }
  for (layers::Batch& stream : batch.joined) ops::make_attention_metadata(stream.sequences, x.device());
  std::optional<layers::MemoryRows> memory;
  if (policy_.memory) {
    memory.emplace(batch.sequences.spans, policy_.memory->length);
    set_rows(memory->queries(), memory->keys(), batch, x.device(), comm);
  } else if (relative_ && !resizes_) {
    batch.relative = (*relative_)(batch, x.device(), comm);
  }
  if (buckets_)
    batch.buckets = ops::sequence_buckets(batch.sequences.spans, batch.columns, batch.streams, *buckets_, x.device());
  Rows rows = rows_at_begin(batch);
  const std::vector<ops::Rotation> rotations = rotaries_.rotations(batch.positions, batch.long_rows, batch.axes);
  const ops::Rotation none;
  if (source) {  // once for all layers
    for (at::Tensor* read : {&source->states, &source->added_positions})
      if (read->defined()) *read = read->to(types_.product);
  }
  if (!reversible_.empty()) x = run_reversible(x.to(types_.residual), batch, cache, comm);
  layers::Residual state(std::exchange(x, {}).to(types_.residual));
  layers::SharedKeys within;  // of a forward pass without a cache
  if (policy::shares_keys(policy_) && !batch.shared_keys && !cache) batch.shared_keys = &within;
  if (batch.shared_keys && cache) take_shared_keys(batch, cache);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    if (keeps) keep(state.sum());  // as transformers has it, before rows of deep projectors
    add_deep_images(range_.begin + static_cast<int64_t>(layer) - 1, batch.images, state);
    if (resizes_) {
      const auto number = static_cast<size_t>(range_.begin) + layer;
      if (is_added_later(policy_, number)) batch.skipped = state.sum().to(at::kFloat);
      resize(number, rows, state, batch, comm);
      if (keeps && policy_.layers[number].upsampling) keep(state.sum());
    }
    if (keeps && policy_.layers[static_cast<size_t>(range_.begin) + layer].repeats_state) keep(state.sum());
    if (memory) {
      const auto number = static_cast<size_t>(range_.begin) + layer;
      batch.keyed = layers_[layer].keyed(*memory, batch.memory.empty() ? at::Tensor() : batch.memory[number], state);
    }
    const std::optional<size_t> rotary = layers_[layer].rotary;
    layers_[layer](state, batch, rotary ? rotations[*rotary] : none,
                   cache ? layers::LayerCache{&cache->keys(layer), &cache->values(layer), &cache->states().layer(layer)}
                         : layers::LayerCache{},
                   source, comm);
    const int64_t number = range_.begin + static_cast<int64_t>(layer);
    for (const policy::DeepProjector& deep : policy_.output.deep_projectors)
      if (deep.layer == number) batch.deep[number] = state.sum().to(at::kFloat);
  }
  for (const TwoStreamLayer& layer : two_streams_) {
    if (keeps) keep(state.sum());
    layer(state, batch, comm);
  }
  for (const layers::QuantizedLayer& layer : quantized_) {
    if (keeps) keep(state.sum());
    state = layers::Residual(layer(state.sum(), batch, comm));
  }
  batch.added_positions = positions;
  batch.keyed.reset();
  if (batch.shared_keys == &within)
    batch.shared_keys = nullptr;
  else if (batch.shared_keys)
    std::erase_if(*batch.shared_keys, [&](const auto& entry) { return !is_read_later(entry.first); });
  if (!ends_) return state.sum().to(at::kFloat);
  add_deep_images(range_.end - 1, batch.images, state);
  if (raw_states_ && keeps) keep(state.sum());
  x = state.normed(norm_, at::kFloat);
  if (projection_) x = (*projection_)(x);
  if (!raw_states_ && keeps) keep(x);
  return queries_ ? queried(x, of_input, batch, comm).to(at::kFloat) : x;
}

at::Tensor Stack::source(const at::Tensor& states) const {
  return cross_projection_ ? (*cross_projection_)(states) : states;
}

at::Tensor Stack::image_rows(const at::Tensor& states, const layers::Batch& batch) const {
  const layers::ImageProjector& projector = image_projector_.value();
  if (!policy_.input.patch_grid) return projector(states, policy_.positions);
  std::vector<at::Tensor> beside{projector.of_squares(states)};
  for (size_t i = 0; i < deep_projectors_.size(); ++i)
    beside.push_back(deep_projectors_[i].of_squares(batch.deep.at(policy_.output.deep_projectors[i].layer)));
  const at::Tensor rows = beside.size() == 1 ? beside[0] : at::cat(beside, 1);
  return at::empty_like(rows).index_copy_(0, batch.patches.squares, rows);
}

at::Tensor Stack::pooled(const at::Tensor& states) const {
  at::Tensor x = normed(pooler_norm_, states, at::kFloat);
  if (pooler_dense_) x = (*pooler_dense_)(x);
  return layers::activate(pooler_activation_, x);
}

}  // namespace pm::models
