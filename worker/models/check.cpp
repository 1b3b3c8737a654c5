// SPDX-License-Identifier: Apache-2.0
// Model::check: options of stacks that this version does not run. heads/ has those of each kind of head.
#include <algorithm>
#include <cmath>

#include "worker/models/check_images.h"
#include "worker/models/check_latent_attention.h"
#include "worker/models/check_recurrent.h"
#include "worker/models/heads/heads.h"
#include "worker/models/model.h"

namespace pm::models {

namespace {

/// Checks a stack over cells of images, or one of learned queries that attends to such a stack.
void check_detection(const policy::Model& model, const policy::Stack& stack) {
  const policy::Input& input = stack.input;
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  if (input.token || input.positions || input.features || input.entities || !input.tables.empty() ||
      input.reads_images() || input.convolutions || input.positional_convolution || input.norm || input.class_token ||
      input.distillation_token || input.position != policy::PositionKind::None)
    refuse("has a backbone or learned queries beside tokens, patches, audio, tables, norms or other positions");
  if (input.backbone.has_value() == input.queries.has_value())
    refuse("has the stack \"" + stack.name +
           "\" with a backbone and learned queries, or with positions of cells alone");
  if (input.backbone && (!input.projection || !input.grid)) refuse("has a backbone without a projection or positions");
  if (input.queries && (input.projection || input.grid)) refuse("has learned queries with a projection or a grid");
  if (stack.output.pooler) refuse("pools cells of images or learned queries");
  for (const policy::Layer& layer : stack.layers) {
    const policy::Attention& self = layer.attention;
    if (self.mask != policy::Mask::Full || self.is_sparse() || self.relative_content || self.rotary || self.alibi ||
        self.relative_position_bias || layer.bottleneck || layer.order == policy::Order::Parallel)
      refuse(
          "adds positions to queries and keys of attention that is causal, sparse, has other positions, or stands "
          "in parallel layers or in a bottleneck");
    if (input.backbone && layer.cross) refuse("has cross-attention of cells of images");
    if (!input.queries) continue;
    const policy::Stack* source = layer.cross ? model.stack(layer.cross->source) : nullptr;
    if (!source || !source->input.backbone) refuse("has learned queries that do not attend to cells of images");
  }
}

void check_input(const policy::Model& model, const policy::Stack& stack) {
  const policy::Input& input = stack.input;
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  if (input.patch_grid) return;  // check_images()
  if (input.mask_token && !input.reads_images()) refuse("has a token for masked patches without patches");
  if (input.backbone || input.queries || input.grid) return check_detection(model, stack);
  if (input.pixels) {
    if (input.token || input.positions || input.position != policy::PositionKind::None || !input.tables.empty() ||
        input.features || input.projection || input.class_token || input.distillation_token || input.norm ||
        input.convolutions || input.vectors)
      refuse("has pixels beside tokens, positions, tables, patches, audio, vectors or a norm");
    if (!input.latents) refuse("has pixels that no latents read");
    return;
  }
  if (!input.token && !input.reads_images() && !input.convolutions && !input.vectors)
    refuse("has the stack \"" + stack.name + "\" without tokens, patches, audio and vectors");
  if (input.vectors && (input.token || input.positions || input.position != policy::PositionKind::None ||
                        !input.tables.empty() || input.features || input.projection || input.class_token ||
                        input.distillation_token || input.norm || input.convolutions || input.positional_convolution))
    refuse("has vectors in place of tokens beside tokens, positions, tables, patches, audio or a norm of their mean");
  if (input.convolutions &&
      (input.token || input.features || !input.tables.empty() || input.reads_images() || input.position_after_norm))
    refuse("has audio beside tokens, patches or tables");
  if (input.convolutions && input.positions && input.convolutions->exact_length == 0)
    refuse("has learned positions of audio whose rows may have any length");
  if (input.positional_convolution && !input.convolutions) refuse("has a positional convolution without audio");
  for (const policy::Convolution& layer :
       input.convolutions ? input.convolutions->layers : std::vector<policy::Convolution>{}) {
    if (layer.norm && layer.norm->kind != policy::NormKind::Layer)
      refuse("has convolutions with norms that are not LayerNorm or group norm");
  }
  if (input.axial && (!input.token || input.reads_images() || input.convolutions || input.features || input.entities ||
                      input.streams || input.position_after_norm || input.position_skips_padding))
    refuse("has axial positions beside patches, audio, dense vectors, entities, streams or other positions");
  const bool tokens_alone = input.token && !input.features && !input.reads_images() && !input.position_after_norm;
  if (input.project_tokens && (!tokens_alone || input.norm_projected))
    refuse("projects tokens beside patches, audio or dense vectors, or before a norm that comes last");
  if (input.joined_states && (!tokens_alone || input.position != policy::PositionKind::None || input.projection ||
                              input.norm || !input.tables.empty() || input.images))
    refuse("joins states of another model to what is not the embedding of a token alone");
  if (input.trigram && !(input.project_tokens && input.projection)) refuse("has trigrams that are not projected");
  if (input.entities && (!tokens_alone || input.project_tokens || input.projection || input.norm_projected ||
                         input.position_reset_per_cell || !input.positions))
    refuse(
        "has entities beside patches, audio or dense vectors, or without learned positions of tokens as wide as "
        "states");
  const auto tells_cells = [](const policy::IndexTable& table) {
    return table.input == "token_type_ids" && std::max(table.column, table.minus_column) >= 2;
  };
  if (input.position_reset_per_cell && std::none_of(input.tables.begin(), input.tables.end(), tells_cells))
    refuse("has positions in cells without their columns and rows");
  const bool columns = input.token && input.position == policy::PositionKind::Learned && !input.position_after_norm &&
                       !input.position_skips_padding && !input.position_reset_per_cell;
  if (input.streams && (!columns || input.scale != 1 || input.features || input.entities || input.trigram ||
                        input.projection || !input.tables.empty() || !input.token_types.empty()))
    refuse("has streams beside tokens that are not the sum of a token's and a position's learned row");
  if (input.streams && !std::all_of(stack.layers.begin(), stack.layers.end(), [](const policy::Layer& layer) {
        return layer.attention.content_buckets && layer.order != policy::Order::Parallel;
      }))
    refuse("has streams without content_buckets in each layer, or in parallel layers");
  if (input.targets && (!tokens_alone || input.entities || input.streams || input.trigram || input.adds_positions() ||
                        input.position != policy::PositionKind::None || !input.tables.empty()))
    refuse("has targets beside what is not the embedding of a token alone");
  if (input.targets && !std::all_of(stack.layers.begin(), stack.layers.end(), [](const policy::Layer& layer) {
        const auto& content = layer.attention.relative_content;
        return content && !content->class_apart && !content->head_vectors && !layer.cross && !layer.branch &&
               !layer.pooling && !layer.upsampling && !layer.attention.span_convolution;
      }))
    refuse("has targets in layers that read more than tokens at relative positions by content");
  if (input.features && !columns)
    refuse("has dense vectors beside tokens whose positions are not learned ones of their columns");
  if (input.features && stack.output.pooler && stack.output.pooler->pool == policy::Pool::Last)
    refuse("pools the last of tokens and dense vectors");
}

void check_layer(const policy::Model& model, const policy::Layer& layer) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  const policy::Attention& self = layer.attention;
  const auto& cross = layer.cross;
  if (cross && layer.order == policy::Order::Parallel) refuse("has cross-attention in parallel layers");
  if (cross && (cross->rotary || cross->alibi || cross->relative_position_bias))
    refuse("has positions in cross-attention");
  if (self.relative_content && (self.kv_heads != self.heads || self.is_sparse() || self.softcap > 0))
    refuse("has relative positions by content beside grouped heads, a sparse pattern or softcapping");
  const bool attends_plainly = self.kv_heads == self.heads && self.mask == policy::Mask::Full && !self.is_sparse() &&
                               !self.relative_content && !self.rotary && !self.values_apart;
  if ((self.span_convolution && (!attends_plainly || cross || layer.order == policy::Order::Parallel)) ||
      (cross && cross->span_convolution))
    refuse(
        "has heads that convolve beside attention that is grouped, causal, sparse, of relative positions, crosses or "
        "stands in parallel layers");
  if ((self.entity_queries && (!attends_plainly || self.softcap > 0 || self.alibi || self.relative_position_bias ||
                               self.span_convolution || cross || layer.order == policy::Order::Parallel)) ||
      (cross && cross->entity_queries))
    refuse(
        "has queries of entities beside attention that is grouped, causal, sparse, with positions in it, crosses or "
        "stands in parallel layers");
  if (self.content_buckets &&
      (self.kv_heads != self.heads || self.mask != policy::Mask::Causal || self.is_sparse() || self.softcap > 0 ||
       self.window > 0 || self.alibi || self.rotary || self.relative_position_bias || self.relative_content ||
       self.query_norm || self.key_norm || self.values_apart || self.shows_scores ||
       layer.order == policy::Order::Parallel))
    refuse(
        "has content_buckets beside grouped heads, attention that is not causal, a pattern, softcapping, other "
        "positions in attention, norms of heads, a bottleneck, scores in place of attentions, or in parallel layers");
  if (cross && cross->content_buckets) refuse("has content_buckets in cross-attention");
  if (cross && cross->relative_content) refuse("has relative positions by content in cross-attention");
  if (layer.branch && (layer.order != policy::Order::Post || self.mask != policy::Mask::Full || cross))
    refuse("has a convolution beside layers that are not post-norm, or that are causal or cross");
  const bool plain = layer.order == policy::Order::Post && !cross && !layer.branch && !layer.attention.is_sparse() &&
                     !self.relative_content;
  if (layer.bottleneck && !plain)
    refuse(
        "has a bottleneck around layers that are not post-norm, or with cross-attention, a convolution, a sparse "
        "pattern or relative positions by content");
  if (!layer.stacked.empty() && layer.order == policy::Order::Parallel)
    refuse("has stacked feed-forward blocks in parallel layers");
  for (const policy::Mlp& mlp : layer.stacked)
    if (mlp.post_norm) refuse("has norms after stacked feed-forward blocks");
  if (self.projection_norms &&
      (self.is_sparse() || self.relative_content || self.values_apart || self.entity_queries || self.span_convolution))
    refuse("has norms of whole projections beside a sparse pattern, relative positions by content or further heads");
  const bool differs = self.value_norm || self.values_are_keys || self.reuses || self.layout > 0;
  if (differs && (cross || layer.order == policy::Order::Reversible || layer.bottleneck || layer.co_attention ||
                  self.is_sparse() || self.chunks || self.relative_content || self.content_buckets ||
                  self.entity_queries || self.span_convolution || self.quantized || self.value_dim > 0 ||
                  self.values_apart || self.queries_apart || (self.projection_norms && self.value_norm)))
    refuse(
        "has norms of values, values that are keys, keys of earlier layers or heads of several sizes beside "
        "cross-attention, a pattern, positions by content or further heads");
  if (self.reuses && (self.sinks || self.projection_norms || (self.rotary && self.rotary->values)))
    refuse("has keys of earlier layers beside attention sinks, norms of whole projections or rotated values");
  if ((layer.beside || layer.input || layer.factor) &&
      (layer.order != policy::Order::Pre || layer.residual_normed || layer.branch || layer.bottleneck || layer.cross ||
       layer.co_attention || layer.residual_multiplier != 1))
    refuse("has blocks beside the MLP, inputs of layers or factors of states in layers that are not plainly pre-norm");
  if ((cross && cross->sinks) ||
      (self.sinks && (self.is_sparse() || self.chunks || self.content_buckets || self.quantized)))
    refuse("has attention sinks in cross-attention, or beside a pattern, chunks, content_buckets or integers");
  if (cross && cross->projection_norms) refuse("has norms of whole projections in cross-attention");
  for (const auto* norm : {&self.query_norm, &self.key_norm})
    if (*norm && (*norm)->kind == policy::NormKind::Affine) refuse("has norms of heads without statistics");
  if (layer.residual_normed && layer.order != policy::Order::Pre)
    refuse("has a normed residual in layers that are not pre-norm");
  if ((self.post_norm || layer.mlp.post_norm) && layer.order != policy::Order::Pre)
    refuse("has norms after the blocks of layers that are not pre-norm");
  if (self.softcap > 0 && (self.alibi || self.relative_position_bias)) refuse("has softcapped scores with a bias");
  if (cross && (cross->softcap > 0 || cross->query_norm || cross->key_norm || cross->post_norm))
    refuse("has softcapped scores or further norms in cross-attention");
  if (self.window > 0 && self.is_sparse()) refuse("has a window beside a sparse pattern");
  if ((cross && cross->is_sparse()) || (self.is_sparse() && self.mask != policy::Mask::Full))
    refuse("has a sparse pattern in attention that is causal or crosses");
  if (self.is_sparse() && (self.kv_heads != self.heads || self.alibi || self.rotary || self.relative_position_bias ||
                           self.softcap > 0 || self.query_norm || self.key_norm))
    refuse("has a sparse pattern with grouped heads, positions in attention, softcapped scores or norms of heads");
}

/// Returns whether a linear has what integers are made of: a matrix stored as it is, of its own, and a bias.
bool becomes_integers(const policy::Linear& linear) {
  return linear.bias && linear.weight.fused == policy::Fused::None && !linear.weight.conv1d &&
         linear.weight.diagonal_blocks == 1 && linear.weight.shares.empty();
}

/// Refuses all that a stack which computes in integers does not have.
void check_quantized(const policy::Model& model, const policy::Stack& stack) {
  const policy::Input& input = stack.input;
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  const auto is_layer_norm = [](const std::optional<policy::Norm>& norm) {
    return norm && norm->kind == policy::NormKind::Layer && norm->weight && norm->bias;
  };
  if (!input.quantized) return;
  if (!input.token || input.position != policy::PositionKind::Learned || !input.positions || input.tables.size() != 1 ||
      input.tables[0].skip_if_absent || input.scale != 1 || input.features || input.entities || input.projection ||
      input.streams || input.targets || input.latents || input.position_after_norm || !input.token_types.empty() ||
      !is_layer_norm(input.norm))
    refuse("computes in integers by an input that is not norm(token + position + type)");
  if (!stack.joins.empty() || stack.memory || policy::resizes_rows(stack) || stack.output.norm ||
      stack.output.projection)
    refuse("computes in integers in a stack that joins others, pools, or has a memory, a last norm or a projection");
  for (const policy::Layer& layer : stack.layers) {
    const policy::Attention& self = layer.attention;
    const auto* dense = std::get_if<policy::DenseMlp>(&layer.mlp.kind);
    if (layer.order != policy::Order::Post || layer.cross || layer.bottleneck || layer.branch ||
        !layer.stacked.empty() || layer.co_attention || layer.residual_multiplier != 1)
      refuse("computes in integers in layers that are not post-norm, or have further blocks");
    if (self.mask != policy::Mask::Full || self.kv_heads != self.heads || self.value_dim > 0 || self.is_sparse() ||
        self.chunks || self.window > 0 || self.softcap > 0 || self.alibi || self.rotary ||
        self.relative_position_bias || self.relative_content || self.content_buckets || self.entity_queries ||
        self.span_convolution || self.projection_norms || self.query_norm || self.key_norm || self.shows_scores ||
        std::abs(self.scale * std::sqrt(static_cast<double>(self.head_dim)) - 1) > 1e-9)
      refuse(
          "computes in integers by attention that is causal, grouped, of some keys, has positions or norms in it, or "
          "is not scaled by the root of the head size");
    if (!dense || dense->activation != policy::Activation::Gelu)
      refuse("computes in integers by an MLP that is gated or has another activation than gelu");
    if (!is_layer_norm(self.norm) || !is_layer_norm(layer.mlp.norm))
      refuse("computes in integers without LayerNorm behind each block");
    for (const policy::Linear* linear : {&self.query, &self.key, &self.value, &self.out, &dense->up, &dense->down})
      if (!becomes_integers(*linear))
        refuse("computes in integers by matrices that are fused, transposed, block-diagonal, shared or without bias");
  }
}

/// Refuses all that a layer of two streams does not have: its attention is plain, and so is what stands around it.
void check_streams(const policy::Model& model, const policy::Layer& layer) {
  if (!layer.co_attention) return;
  const auto is_plain = [](const policy::Attention& attention) {
    return attention.kv_heads == attention.heads && attention.mask == policy::Mask::Full && !attention.is_sparse() &&
           attention.source.empty() && !attention.alibi && !attention.rotary && !attention.relative_position_bias &&
           !attention.relative_content && !attention.entity_queries && !attention.span_convolution &&
           !attention.query_norm && !attention.key_norm && !attention.post_norm && !attention.shows_scores;
  };
  const auto& [across, second, mlp] = *layer.co_attention;
  if (layer.order != policy::Order::Post || layer.cross || layer.bottleneck || layer.branch || !layer.stacked.empty() ||
      layer.residual_multiplier != 1 || layer.mlp.post_norm || mlp.post_norm)
    policy::refuse_architecture(model, "has two streams in layers that are not post-norm, or have further blocks");
  if (!is_plain(layer.attention) || !is_plain(across) || !is_plain(second))
    policy::refuse_architecture(model,
                                "has two streams whose attention is grouped, causal, sparse, has positions in it or "
                                "norms of heads, or shows scores");
}

/// Checks what stands beside layers that pool rows or upsample them.
void check_rows(const policy::Model& model, const policy::Stack& stack) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  const policy::Input& input = stack.input;
  if (!policy::resizes_rows(stack)) return;
  const auto first =
      std::find_if(stack.layers.begin(), stack.layers.end(), [](const auto& one) { return one.pooling; });
  bool pooled = false;
  for (const policy::Layer& layer : stack.layers) {
    if (layer.upsampling && !pooled && layer.upsampling->stride > 1) refuse("upsamples rows that are not pooled");
    if (layer.upsampling && layer.upsampling->added_layer > first - stack.layers.begin())
      refuse("adds states of rows that are pooled to those of all tokens");
    pooled = (pooled && !layer.upsampling) || layer.pooling;
  }
  if (!input.token || input.entities || input.features || input.stream_count() > 0)
    refuse("pools rows that are not those of tokens alone");
  if (stack.output.pooler) refuse("has a pooler behind layers that pool");
  for (const policy::Layer& layer : stack.layers) {
    const auto& content = layer.attention.relative_content;
    if (!content || content->table || content->head_vectors ||
        (content->content_to_position && content->content_to_position->shared) || layer.order != policy::Order::Post ||
        layer.cross || layer.bottleneck || layer.branch || layer.attention.span_convolution)
      refuse(
          "pools rows of layers that are not post-norm, have cross-attention, a bottleneck or a convolution, or whose "
          "attention does not read sinusoids of distances");
  }
  for (const policy::Head& head : model.heads) {
    if (head.stack != stack.name) continue;
    if (head.layer_weights) refuse("has a head that reads all hidden states of layers that pool");
    if (pooled && head.pool() != policy::Pool::First)
      refuse("has a head that reads more than the first of pooled rows");
  }
}

/// Checks what stands beside layers that read a memory: nothing else knows that keys are more than tokens.
void check_memory(const policy::Model& model, const policy::Stack& stack) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  if (!stack.memory) return;
  const policy::Input& input = stack.input;
  if (!input.token || input.entities || input.features || input.stream_count() > 0 || policy::resizes_rows(stack) ||
      policy::reads_padding(stack) || stack.output.pooler)
    refuse("has a memory beside rows that are not those of tokens alone, or a pooler");
  for (const policy::Layer& layer : stack.layers) {
    const policy::Attention& self = layer.attention;
    const auto& content = self.relative_content;
    if (layer.order == policy::Order::Parallel || layer.cross || layer.bottleneck || layer.branch ||
        self.mask != policy::Mask::Causal || self.kv_heads != self.heads || self.alibi || self.rotary ||
        self.relative_position_bias || self.projection_norms || self.entity_queries || self.span_convolution ||
        !content || content->segments || content->head_vectors ||
        (content->content_to_position && content->content_to_position->shared))
      refuse(
          "has a memory in layers that are parallel, have cross-attention, a bottleneck or a convolution, or whose "
          "attention is not causal with projected distances");
  }
}

/// Refuses all that layers of two residual streams, and attention in chunks, do not have.
void check_reversible(const policy::Model& model, const policy::Stack& stack) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  const auto has_chunks = [](const policy::Layer& layer) { return layer.attention.chunks.has_value(); };
  const auto& layers = stack.layers;
  if (std::any_of(layers.begin(), layers.end(), has_chunks) && !std::all_of(layers.begin(), layers.end(), has_chunks))
    refuse("has attention in chunks in some layers of a stack only");
  for (const policy::Layer& layer : layers) {
    const policy::Attention& self = layer.attention;
    if ((self.chunks && (self.kv_heads != self.heads || self.is_sparse() || self.window > 0 || self.softcap > 0 ||
                         self.alibi || self.rotary || self.relative_position_bias || self.relative_content ||
                         self.content_buckets || self.entity_queries || self.span_convolution || self.query_norm ||
                         self.key_norm || self.projection_norms || self.values_apart || self.shows_scores)) ||
        (layer.cross && layer.cross->chunks))
      refuse(
          "has attention in chunks that is grouped, crosses, has another pattern, positions in it, norms of heads, "
          "softcapped scores or further heads");
    if ((layer.order == policy::Order::Reversible) != stack.is_reversible())
      refuse("has two residual streams in some layers of a stack only");
    if (stack.is_reversible() &&
        (layer.cross || layer.bottleneck || layer.branch || layer.co_attention || !layer.stacked.empty() ||
         layer.residual_multiplier != 1 || self.post_norm || layer.mlp.post_norm || self.rotary ||
         stack.input.adds_positions() || stack.input.streams || stack.memory))
      refuse("has two residual streams beside further blocks, norms behind blocks, or positions in attention");
    if (layer.cross && model.stack(layer.cross->source) && model.stack(layer.cross->source)->is_reversible())
      refuse("has cross-attention to two residual streams");
  }
  if (stack.is_reversible() && (stack.output.pooler || stack.output.projection || stack.output.cross_projection))
    refuse("has two residual streams before a pooler or a projection");
}

/// Checks what layers read of the tokens beside their states.
void check_layer_inputs(const policy::Model& model, const policy::Stack& stack) {
  const policy::Input& input = stack.input;
  const bool tokens_alone = input.token && !input.features && !input.entities && !input.streams && !input.targets &&
                            !input.latents && !input.quantized && stack.joins.empty() && !policy::resizes_rows(stack);
  if (input.layer_inputs && !tokens_alone)
    policy::refuse_architecture(model, "has inputs of layers beside rows that are not those of tokens alone");
  for (const policy::Layer& layer : stack.layers)
    if (layer.input && !input.layer_inputs)
      policy::refuse_architecture(model, "has layers that read inputs which its stack does not make");
}

/// Returns whether a block of this attention is one of queries, keys and values alone.
bool attends_alone(const policy::Attention& a) {
  return a.kv_heads == a.heads && a.mask == policy::Mask::Full && !a.is_sparse() && a.window == 0 && a.softcap == 0 &&
         !a.chunks && !a.alibi && !a.rotary && !a.relative_position_bias && !a.relative_content && !a.content_buckets &&
         !a.entity_queries && !a.span_convolution && !a.query_norm && !a.key_norm && !a.projection_norms &&
         !a.post_norm && !a.values_apart && !a.queries_apart && !a.shows_scores;
}

/// Checks values of another width than keys, what latents read, and what reads them.
void check_latents(const policy::Model& model, const policy::Stack& stack) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  const policy::Input& input = stack.input;
  const auto& queries = stack.output.queries;
  for (const policy::Head& head : model.heads) {
    const auto* classes = head.stack == stack.name ? head.as<policy::ClassesSpec>() : nullptr;
    if (classes && classes->per_pixel && (!input.pixels || !queries || queries->vectors || classes->pool))
      refuse("has scores of pixels that are not the queries of latents");
  }
  bool repeats = false;
  for (const policy::Layer& layer : stack.layers) {
    const bool unlike = layer.attention.value_dim > 0 && !layer.attention.latent;
    if (unlike && !attends_alone(layer.attention))
      refuse("has values with a width of their own in attention that is grouped, causal, sparse or has further terms");
    if (layer.cross && layer.cross->value_dim > 0) refuse("has values with a width of their own in cross-attention");
    if ((unlike || input.latents) && (layer.order != policy::Order::Pre || layer.residual_normed))
      refuse("has latents, or values with a width of their own, in layers that are not pre-norm");
    repeats = repeats || layer.repeats_state;
  }
  if (!input.latents) {
    if (queries || repeats) refuse("has queries of latents or blocks of layers without latents");
    return;
  }
  if (!stack.joins.empty() || stack.memory || input.streams || input.features || input.entities ||
      input.adds_positions() || input.convolutions || policy::resizes_rows(stack) || model.stacks.size() > 1 ||
      input.projection || stack.output.projection || stack.output.cross_projection)
    refuse(
        "has latents beside a memory, streams, dense vectors, entities, audio, pooling, projections or other stacks");
  for (const policy::Layer& layer : stack.layers)
    if (layer.cross || layer.branch || layer.bottleneck || !attends_alone(layer.attention))
      refuse("has latents whose layers cross, convolve, or attend otherwise than by queries, keys and values alone");
  for (const policy::CrossBlock* block : {&input.latents->block, queries ? &queries->block : nullptr})
    if (block && (!attends_alone(block->attention) || block->mlp.post_norm))
      refuse("has latents that read, or are read, otherwise than by queries, keys and values alone");
  if (stack.output.norm && queries) refuse("has a norm of latents before queries that read them");
  if (Model::generates(model)) refuse("generates from latents");
}

/// Checks a model whose steps of generation have the whole sequences, as rows without padding.
void check_recompute(const policy::Model& model) {
  const policy::Stack& stack = Model::generating_stack(model);
  const policy::Input& input = stack.input;
  if (model.recompute->target && (!input.targets || model.recompute->append >= 0))
    policy::refuse_architecture(model, "generates by targets that its input does not have, or beside a token");
  if (const auto& overlap = model.recompute->overlap; overlap && (!model.recompute->target || overlap->memory < 0))
    policy::refuse_architecture(model, "generates by steps that overlap without a target, or with a memory of " +
                                           std::to_string(overlap->memory) + " rows");
  if (model.stacks.size() > 1 || stack.layers[0].cross)
    policy::refuse_architecture(model, "generates without a KV cache beside further stacks");
  if (!input.token || input.entities || input.features || input.stream_count() > 0 || policy::resizes_rows(stack) ||
      policy::reads_padding(stack))
    policy::refuse_architecture(model,
                                "generates without a KV cache by rows that are not those of tokens alone, are pooled "
                                "or read padding");
  // Tokens of a prompt see all of them and the memory, those behind it as many keys as the memory has rows, and
  // themselves. A window that is no longer makes both alike.
  for (const policy::Layer& layer : stack.layers)
    if (stack.memory && (layer.attention.window < 1 || layer.attention.window > stack.memory->length + 1))
      policy::refuse_architecture(model, "generates with a memory of " + std::to_string(stack.memory->length) +
                                             " rows and tokens that see more than it");
  for (const policy::Layer& layer : stack.layers) {
    const std::optional<policy::Chunks>& chunks = layer.attention.chunks;
    if (chunks && (layer.attention.mask != policy::Mask::Causal || chunks->after > 0))
      policy::refuse_architecture(model, "generates with attention in chunks whose tokens see those behind them");
    if (chunks && chunks->hashes && chunks->hashes->buckets.empty())
      policy::refuse_architecture(model, "generates by hashes whose number of buckets follows from the length");
  }
}

void check_generation(const policy::Model& model) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  if (model.generates() && !Model::generates(model)) refuse("has no language-model head for its task");
  if (!Model::generates(model)) return;
  if (model.recompute) return check_recompute(model);
  for (const policy::Layer& layer : Model::generating_stack(model).layers) {
    const policy::Attention& self = layer.attention;
    if (self.mask != policy::Mask::Causal) refuse("generates with attention that is not causal");
    if (self.relative_content && !self.relative_content->head_vectors)
      refuse("generates with relative positions by content");
    if (self.chunks) refuse("generates with attention in chunks, whose cache is one of states and hashes");
    if (layer.cross && (layer.cross->kv_heads != self.kv_heads || layer.cross->head_dim != self.head_dim))
      refuse("has cross-attention whose heads are not those of its self-attention");
  }
}

}  // namespace

void Model::check(const policy::Model& model) {
  for (const policy::Stack& stack : model.stacks) {
    if (stack.joins.empty()) check_input(model, stack);
    check_reversible(model, stack);
    check_quantized(model, stack);
    for (const policy::Layer& layer : stack.layers) {
      check_layer(model, layer);
      check_streams(model, layer);
    }
    check_rows(model, stack);
    check_memory(model, stack);
    check_latents(model, stack);
    check_images(model, stack);
    check_layer_inputs(model, stack);
    check_recurrent(model, stack);
    check_latent_attention(model, stack);
  }
  validate_heads(model);
  check_generation(model);
}

}  // namespace pm::models
