// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/layers/patterns/unlike_widths.h"

namespace pm::layers {

namespace {

/// Returns the kv heads that `rank` attends to.
Range kv_heads_of(const policy::Attention& attention, const Partition& partition, int rank) {
  if (attention.value_dim > 0) return policy::rank_range(attention.query.weight, partition, rank);
  return partition.range(attention.query.weight.stack, Axis::Kv, attention.kv_heads, rank, attention.layout);
}

std::optional<SharedHeads> shared_heads(const policy::Attention& attention, const Loader& loader) {
  const int ranks = loader.partition().ranks();
  if (attention.kv_heads >= ranks || attention.value_dim > 0 || attention.reuses) return std::nullopt;
  std::vector<Range> rows;
  for (int rank = 0; rank < ranks; ++rank)
    rows.push_back(policy::rank_range(attention.key.weight, loader.partition(), rank));
  const Range own = kv_heads_of(attention, loader.partition(), loader.rank());
  return SharedHeads(std::move(rows), {own.begin * attention.head_dim, own.end * attention.head_dim}, loader.rank(),
                     loader.device());
}

}  // namespace

SharedHeads::SharedHeads(std::vector<Range> rows, Range own, int rank, at::Device device) {
  std::vector<int64_t> keys, values;
  int64_t before = 0;  // gathered rows of earlier ranks; each has its keys, then its values
  for (const Range& part : rows) {
    for (int64_t row = std::max(part.begin, own.begin); row < std::min(part.end, own.end); ++row) {
      keys.push_back(before + row - part.begin);
      values.push_back(before + part.size() + row - part.begin);
    }
    counts_.push_back(2 * part.size());
    before += counts_.back();
  }
  if (static_cast<int64_t>(keys.size()) != own.size()) {
    throw std::logic_error("rank " + std::to_string(rank) + " attends to " + std::to_string(own.size()) +
                           " rows of keys, all ranks together hold " + std::to_string(keys.size()) + " of them");
  }
  keys.insert(keys.end(), values.begin(), values.end());
  own_ = at::tensor(keys, at::kLong).to(device);
}

at::Tensor SharedHeads::exchanged(const at::Tensor& columns, comm::Communicator& comm) const {
  const at::Tensor all = comm.all_gatherv(columns.t().contiguous(), counts_);
  return at::index_select(all, 0, own_).t().contiguous();
}

KvCache::KvCache(const policy::Stack& stack, Range layers, const Loader& loader, int64_t blocks, DType type,
                 int64_t sequences)
    : arena_(loader.device()), states_(stack, layers, loader, sequences) {
  if (type == DType::I8 && !loader.device().is_cpu())
    throw Error(Reason::UnsupportedPrecision, "a KV cache in I8 is served on CPUs only, and this rank is on " +
                                                  loader.device().str() + "; plan without a KV precision");
  std::map<int64_t, size_t> place_of;  // by the layer that caches
  for (int64_t number = layers.begin; number < layers.end; ++number) {
    const auto& reuses = stack.layers[static_cast<size_t>(number)].attention.reuses;
    const auto [place, fresh] = place_of.emplace(reuses.value_or(number), keys_.size());
    places_.push_back(place->second);
    if (!fresh) continue;
    const policy::Layer& layer = stack.layers[static_cast<size_t>(number)];
    if (layer.recurrent || !layer.has_mixer) {
      keys_.emplace_back();
      values_.emplace_back();
      continue;
    }
    if (const auto& latent = layer.attention.latent) {
      if (type == DType::I8)
        throw std::logic_error("latents in I8: the planner refuses a KV precision for latent attention");
      keys_.push_back(arena_.allocate({blocks, 1, block_tokens, latent->width()}, scalar_type(type)));
      values_.emplace_back();
      continue;
    }
    const int64_t heads = kv_heads_of(layer.attention, loader.partition(), loader.rank()).size();
    const int64_t scale = type == DType::I8 ? kv_scale_bytes : 0;
    const std::vector<int64_t> shape{blocks, heads, block_tokens, layer.attention.head_dim + scale};
    keys_.push_back(arena_.allocate(shape, scalar_type(type)));
    values_.push_back(arena_.allocate(shape, scalar_type(type)));
  }
}

void KvCache::copy_blocks(std::span<const int32_t> pairs) {
  for (auto* layers : {&keys_, &values_}) {
    for (at::Tensor& blocks : *layers) {
      if (!blocks.defined()) continue;
      for (size_t i = 0; i + 1 < pairs.size(); i += 2) blocks[pairs[i + 1]].copy_(blocks[pairs[i]]);
    }
  }
}

namespace {

ops::AttentionOptions options_of(const policy::Attention& attention, const Loader& loader) {
  ops::AttentionOptions options{.scale = attention.scale,
                                .softcap = attention.softcap,
                                .causal = attention.mask == policy::Mask::Causal && attention.source.empty(),
                                .window = attention.window,
                                .captures_scores = attention.shows_scores,
                                .compute_type = scalar_type(loader.partition().compute_type())};
  const Range heads = loader.range(attention.query.weight);
  if (attention.alibi) {
    options.alibi = {
        ops::alibi_slopes(attention.heads).narrow(0, heads.begin, heads.size()).contiguous().to(loader.device()),
        attention.alibi->scaled, attention.alibi->bf16};
  }
  if (attention.relative_position_bias) {
    options.relative_bias = {
        {}, attention.relative_position_bias->max_distance, attention.relative_position_bias->bidirectional};
  }
  return options;
}

Weight buckets_of(const policy::Attention& attention, Loader& loader) {
  return attention.relative_position_bias ? loader.weight(attention.relative_position_bias->table) : Weight();
}

std::vector<const policy::Linear*> projections_of(const policy::Attention& attention) {
  if (!attention.source.empty() || attention.queries_apart) return {&attention.query};
  if (attention.values_apart) return {&attention.query, &attention.key};
  if (attention.chunks && attention.chunks->hashes) return {&attention.query, &attention.value};
  if (attention.reuses) return {&attention.query};
  if (attention.values_are_keys) return {&attention.query, &attention.key};
  return {&attention.query, &attention.key, &attention.value};
}

std::vector<const policy::Linear*> projections_of_source(const policy::Attention& attention) {
  if (attention.values_apart) return {&attention.key};
  return {&attention.key, &attention.value};
}

}  // namespace

Attention::Attention(const policy::Attention& attention, Loader& loader)
    : options_(options_of(attention, loader)),
      buckets_(buckets_of(attention, loader)),
      sinks_(attention.sinks ? loader.weight(*attention.sinks) : Weight()),
      heads_(loader.range(attention.query.weight).size()),
      kv_heads_(kv_heads_of(attention, loader.partition(), loader.rank()).size()),
      head_dim_(attention.head_dim),
      value_dim_(attention.value_width()),
      shared_(shared_heads(attention, loader)),
      values_are_keys_(attention.values_are_keys),
      reuses_(attention.reuses),
      reused_as_(attention.reused_as),
      crosses_(!attention.source.empty()),
      queries_apart_(attention.queries_apart),
      norms_after_rotary_(attention.norms_after_rotary),
      in_patch_windows_(attention.in_patch_windows),
      relative_(attention.relative_content
                    ? std::optional<RelativeTerms>(std::in_place, *attention.relative_content, loader)
                    : std::nullopt),
      buckets_of_queries_(attention.content_buckets
                              ? std::optional<ContentBuckets>(std::in_place, *attention.content_buckets, loader)
                              : std::nullopt),
      in_(projections_of(attention), loader),
      projection_norms_(attention.projection_norms ? std::optional<ProjectionNorms>(std::in_place, attention, loader)
                                                   : std::nullopt),
      values_(attention.values_apart ? std::optional<ColumnLinear>(
                                           std::in_place, std::vector<const policy::Linear*>{&attention.value}, loader)
                                     : std::nullopt),
      source_(crosses_ || queries_apart_
                  ? std::optional<ColumnLinear>(std::in_place, projections_of_source(attention), loader)
                  : std::nullopt),
      entity_queries_(attention.entity_queries
                          ? std::optional<EntityQueries>(std::in_place, *attention.entity_queries, loader)
                          : std::nullopt),
      convolver_(attention.span_convolution ? std::optional<SpanConvolver>(std::in_place, attention, loader)
                                            : std::nullopt),
      sparse_(attention.is_sparse() ? std::optional<SparseSelfAttention>(std::in_place, attention, loader)
                                    : std::nullopt),
      chunked_(attention.chunks ? std::optional<ChunkedAttention>(std::in_place, attention, loader) : std::nullopt),
      output_gate_(attention.output_gate
                       ? std::optional<ColumnLinear>(
                             std::in_place, std::vector<const policy::Linear*>{&*attention.output_gate}, loader)
                       : std::nullopt),
      out_(attention.out, loader) {
  if (attention.query_norm) query_norm_.emplace(*attention.query_norm, loader);
  if (attention.key_norm) key_norm_.emplace(*attention.key_norm, loader);
  if (attention.value_norm) value_norm_.emplace(*attention.value_norm, loader);
  if (query_norm_) head_norms_.query = query_norm_->of_heads();
  if (key_norm_) head_norms_.key = key_norm_->of_heads();
  for (int rank = 0; rank < loader.partition().ranks(); ++rank) {
    heads_of_rank_.push_back(policy::rank_range(attention.query.weight, loader.partition(), rank).size());
  }
}

ops::AttentionOptions Attention::options() const {
  ops::AttentionOptions options = options_;
  if (buckets_.defined()) options.relative_bias.table = buckets_.value();
  if (sinks_.defined()) options.sinks = sinks_.value().to(at::kFloat);
  return options;
}

/// Returns `count` heads of `rows` from head `first` on, as [tokens, count, head_dim].
at::Tensor Attention::heads(const at::Tensor& rows, int64_t first, int64_t count) const {
  return rows.narrow(1, first * head_dim_, count * head_dim_).reshape({rows.size(0), count, head_dim_});
}

/// Returns the values beside keys of this rank's kv heads, as [tokens, kv heads, width of values].
at::Tensor Attention::values_of(const at::Tensor& keys_and_values) const {
  return keys_and_values.narrow(1, kv_heads_ * head_dim_, kv_heads_ * value_dim_)
      .reshape({keys_and_values.size(0), kv_heads_, value_dim_});
}

/// Returns keys and values of this rank's kv heads side by side: columns `first`.. of what was projected, exchanged
/// where ranks share heads. This happens before rotary embedding, which mixes columns that different ranks may have.
at::Tensor Attention::keys_and_values(const at::Tensor& projected, int64_t first, comm::Communicator& comm) const {
  const at::Tensor columns = projected.narrow(1, first, projected.size(1) - first);
  return shared_ ? shared_->exchanged(columns, comm) : columns;
}

at::Tensor Attention::ragged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ops::StepSequences& sequences, const ops::AttentionOptions& options,
                             const Batch& batch, std::vector<std::vector<at::Tensor>>* captured,
                             comm::Communicator& comm) const {
  const bool captures = batch.capture && batch.capture->attentions;
  std::vector<at::Tensor> probabilities;
  const at::Tensor out = attend_unlike(q, k, v, sequences, options, captures ? &probabilities : nullptr);
  if (!captures) return out;
  for (at::Tensor& of_sequence : probabilities) of_sequence = comm.gatherv(of_sequence.contiguous(), heads_of_rank_, 0);
  captured->push_back(std::move(probabilities));
  return out;
}

at::Tensor Attention::sparse(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& x,
                             const Batch& batch, comm::Communicator& comm) const {
  const auto exchange = [&](const at::Tensor& columns) { return keys_and_values(columns, 0, comm); };
  if (!batch.capture || !batch.capture->attentions) return (*sparse_)(q, k, v, x, batch, exchange, nullptr);
  std::vector<ops::SparseProbabilities> probabilities;
  const at::Tensor out = (*sparse_)(q, k, v, x, batch, exchange, &probabilities);
  const auto gather = [&](const at::Tensor& own) {
    if (own.size(2) > 0) return comm.gatherv(own.contiguous(), heads_of_rank_, 0);
    const int64_t heads = std::accumulate(heads_of_rank_.begin(), heads_of_rank_.end(), int64_t{0});
    return comm.rank() == 0 ? own.new_zeros({heads, own.size(1), 0}) : at::Tensor();  // there are no global tokens
  };
  std::vector<at::Tensor> seen, global;
  for (const ops::SparseProbabilities& of_sequence : probabilities) {
    seen.push_back(gather(of_sequence.seen));
    if (of_sequence.global.defined()) global.push_back(gather(of_sequence.global));
  }
  batch.capture->attention.push_back(std::move(seen));
  if (!global.empty()) batch.capture->global.push_back(std::move(global));
  return out;
}

/// Returns the projections of x, and sets the terms of relative positions. Their rows go through the block's
/// projections together with x where they share them: a gathered weight is used once in a layer.
at::Tensor Attention::with_relative_content(const at::Tensor& x, const Batch& batch,
                                            ops::AttentionOptions& options) const {
  if (!relative_->shares()) {
    options.relative_content = (*relative_)(batch.relative, {}, heads_, head_dim_);
    return in_(x);
  }
  const at::Tensor rows = batch.relative.states.to(x.scalar_type());
  const at::Tensor both = in_(at::cat({x, rows}));
  options.relative_content =
      (*relative_)(batch.relative, both.narrow(0, x.size(0), rows.size(0)).to(at::kFloat), heads_, head_dim_);
  return both.narrow(0, 0, x.size(0));
}

/// Attends with queries of two parts, one for tokens and one for entities. Values are as wide as they are, with zeros
/// that nothing reads.
at::Tensor Attention::with_entities(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& x,
                                    const Batch& batch, const ops::AttentionOptions& options,
                                    comm::Communicator& comm) const {
  return ragged(entity_queries_->queries(q, x, batch.entities), EntityQueries::keys(k, batch.entities),
                at::cat({v, at::zeros_like(v)}, 2), batch.sequences, options, batch,
                batch.capture ? &batch.capture->attention : nullptr, comm)
      .narrow(2, 0, head_dim_);
}

/// Returns queries, keys and values side by side, values normed where ranks do not share heads: a norm is of whole
/// heads.
at::Tensor Attention::projected(const at::Tensor& x, const at::Tensor& values) const {
  if (values_) return at::cat({in_(x), (*values_)(values)}, 1);
  const at::Tensor all = in_(x);
  const bool norms = value_norm_ && !shared_;
  if (!values_are_keys_ && !norms) return all;
  const int64_t queries = heads_ * head_dim_, keys = (all.size(1) - queries) / (values_are_keys_ ? 1 : 2);
  at::Tensor v = all.narrow(1, values_are_keys_ ? queries : queries + keys, keys);
  if (norms) v = (*value_norm_)(v.reshape({x.size(0), -1, value_dim_}), all.scalar_type()).reshape({x.size(0), keys});
  return at::cat({all.narrow(1, 0, queries + keys), v}, 1);
}

/// Attends with biases that queries say for distances, in all streams of the batch.
at::Tensor Attention::in_buckets(const at::Tensor& x, const Batch& batch, LayerCache cache,
                                 comm::Communicator& comm) const {
  at::Tensor biases = (*buckets_of_queries_)(x, heads_);
  const bool swaps = batch.streams > 0 && !cache.keys && buckets_of_queries_->is_swapped();
  if (swaps) biases = ContentBuckets::swapped(biases, batch, heads_of_rank_, comm);
  const at::Tensor qkv = in_(x), kv = keys_and_values(qkv, heads_ * head_dim_, comm);
  ops::BucketAttention attention{.scale = options_.scale,
                                 .streams = batch.streams,
                                 .q = heads(qkv, 0, heads_),
                                 .k = heads(kv, 0, kv_heads_),
                                 .v = heads(kv, kv_heads_, kv_heads_),
                                 .biases = biases,
                                 .buckets = batch.buckets};
  if (cache.keys) {
    const int64_t tokens = x.size(0) / (1 + batch.streams);
    ops::write_kv(attention.k.narrow(0, 0, tokens), attention.v.narrow(0, 0, tokens), batch.slots, *cache.keys,
                  *cache.values);
    attention.k_cache = cache.keys;
    attention.v_cache = cache.values;
  }
  const bool captures = batch.capture && batch.capture->attentions;
  ops::BucketProbabilities probabilities;
  const at::Tensor result =
      ops::bucket_attention(attention, batch.sequences.spans, captures ? &probabilities : nullptr);
  if (captures) {
    for (auto* of_sequences : {&probabilities.own, &probabilities.streams})
      for (at::Tensor& one : *of_sequences) one = comm.gatherv(one.contiguous(), heads_of_rank_, 0);
    batch.capture->attention.push_back(std::move(probabilities.own));
    if (batch.streams > 0) batch.capture->streams.push_back(std::move(probabilities.streams));
  }
  return result.reshape({x.size(0), heads_ * head_dim_});
}

at::Tensor Attention::in_chunks(const at::Tensor& x, const Batch& batch, comm::Communicator& comm) const {
  const at::Tensor all = in_(x), q = heads(all, 0, heads_);
  const int64_t own = chunked_->hashes() ? 0 : heads_;  // heads before the keys
  return (*chunked_)(q, heads(all, own, heads_), heads(all, own + heads_, heads_), batch, comm)
      .reshape({x.size(0), heads_ * head_dim_});
}

namespace {

/// Returns the queries times the factors of their positions, where there are any.
at::Tensor grown(const at::Tensor& q, const ops::Rotation& rotation) {
  return rotation.query_factors.defined() ? q * rotation.query_factors.to(q.scalar_type()) : q;
}

}  // namespace

/// Attends to the keys and values of an earlier layer.
at::Tensor Attention::reusing(const at::Tensor& x, const Batch& batch, const ops::Rotation& rotation, LayerCache cache,
                              comm::Communicator& comm) const {
  at::Tensor q = heads(in_(x), 0, heads_);
  if (query_norm_ && !norms_after_rotary_) q = (*query_norm_)(q, q.scalar_type());
  if (rotation.angles.cos.defined()) q = ops::rotate(q, rotation.angles, rotation.is_neox);
  if (query_norm_ && norms_after_rotary_) q = (*query_norm_)(q, q.scalar_type());
  q = grown(q, rotation);
  const auto attend = [&] {
    if (cache.keys) return ops::paged_attention(q, *cache.keys, *cache.values, batch.sequences, options());
    const auto& [k, v] = batch.shared_keys->at(*reuses_);
    return ragged(q, k.to(q.scalar_type()), v.to(q.scalar_type()), batch.sequences, options(), batch,
                  batch.capture ? &batch.capture->attention : nullptr, comm);
  };
  return attend().reshape({x.size(0), heads_ * value_dim_});
}

at::Tensor Attention::self(const at::Tensor& x, const at::Tensor& values, const Batch& batch,
                           const ops::Rotation& rotation, LayerCache cache, comm::Communicator& comm) const {
  at::Tensor heads = attend(x, values, batch, rotation, cache, comm);
  return output_gate_ ? heads.mul_((*output_gate_)(x).sigmoid_()) : heads;
}

at::Tensor Attention::attend(const at::Tensor& x, const at::Tensor& values, const Batch& batch,
                             const ops::Rotation& rotation, LayerCache cache, comm::Communicator& comm) const {
  if (chunked_) return in_chunks(x, batch, comm);
  if (buckets_of_queries_) return in_buckets(x, batch, cache, comm);
  if (reuses_) return reusing(x, batch, rotation, cache, comm);
  const bool keeps = reused_as_ && batch.shared_keys;  // later layers read keys and values outside of a cache
  ops::AttentionOptions options = this->options();
  at::Tensor qkv = relative_ ? with_relative_content(x, batch, options) : projected(x, values);
  if (projection_norms_) qkv = (*projection_norms_)(qkv, comm);
  if (cache.keys && !shared_ && !norms_after_rotary_ &&
      !keeps) {  // keys are normed and rotated on their way into the cache
    const at::Tensor q =
        grown(ops::rotary_write(qkv, heads_, head_norms_, rotation, batch.slots, *cache.keys, *cache.values), rotation);
    return ops::paged_attention(q, *cache.keys, *cache.values, batch.sequences, options)
        .reshape({x.size(0), heads_ * head_dim_});
  }
  const at::Tensor kv = queries_apart_ ? keys_and_values((*source_)(batch.keyed.defined() ? batch.keyed : x), 0, comm)
                                       : keys_and_values(qkv, heads_ * head_dim_, comm);
  at::Tensor q = heads(qkv, 0, heads_), k = heads(kv, 0, kv_heads_), v = values_of(kv);
  const auto norm_heads = [&] {
    if (query_norm_) q = (*query_norm_)(q, q.scalar_type());
    if (key_norm_) k = (*key_norm_)(k, k.scalar_type());
  };
  if (!norms_after_rotary_) norm_heads();
  if (rotation.angles.cos.defined()) {
    q = ops::rotate(q, rotation.angles, rotation.is_neox);
    k = ops::rotate(k, rotation.angles, rotation.is_neox);
    if (rotation.rotate_values) v = ops::rotate(v, rotation.angles, rotation.is_neox);
  }
  if (norms_after_rotary_) norm_heads();
  if (value_norm_ && shared_) v = (*value_norm_)(v, v.scalar_type());
  if (keeps) (*batch.shared_keys)[*reused_as_] = {k, v};
  q = grown(q, rotation);
  at::Tensor result;
  if (cache.keys) {
    ops::write_kv(k, v, batch.slots, *cache.keys, *cache.values);
    result = ops::paged_attention(q, *cache.keys, *cache.values, batch.sequences, options);
  } else if (sparse_) {
    result = sparse(q, k, v, x, batch, comm);
  } else if (entity_queries_ && batch.entities.ids.defined()) {
    result = with_entities(q, k, v, x, batch, options, comm);
  } else {
    result = ragged(q, k, v, in_patch_windows_ ? batch.patch_windows : batch.sequences, options, batch,
                    batch.capture ? &batch.capture->attention : nullptr, comm);
  }
  result = result.reshape({x.size(0), heads_ * value_dim_});
  if (!convolver_) return result;
  const at::Tensor queries = qkv.narrow(1, 0, heads_ * head_dim_).to(at::kFloat);
  const at::Tensor convolved = (*convolver_)(x.to(at::kFloat), queries, batch, comm);
  return at::cat({result, convolved.to(result.scalar_type())}, 1);
}

at::Tensor Attention::cross(const at::Tensor& x, const Batch& batch, const Source& source, LayerCache cache,
                            comm::Communicator& comm) const {
  const ops::AttentionOptions options = this->options();
  const at::Tensor q = heads(in_(x), 0, heads_);
  at::Tensor k, v;
  if (source.states.defined()) {
    const auto project = [&] {
      if (!values_) return (*source_)(source.states);
      const at::Tensor values = (*values_)(source.states);  // in the order in which the weights were loaded
      return at::cat({(*source_)(source.states + source.added_positions), values}, 1);
    };
    const at::Tensor kv = keys_and_values(project(), 0, comm);
    k = heads(kv, 0, kv_heads_);
    v = values_of(kv);
  }
  if (cache.keys && k.defined()) ops::write_kv(k, v, source.slots, *cache.keys, *cache.values);
  // the sequences are those of one stream: queries of the same token in each stream read the same source
  const int64_t tokens = x.size(0) / (1 + batch.streams);
  std::vector<at::Tensor> results;
  std::vector<std::vector<at::Tensor>> captured;
  for (int64_t stream = 0; stream <= batch.streams; ++stream) {
    const at::Tensor queries = batch.streams > 0 ? q.narrow(0, stream * tokens, tokens) : q;
    results.push_back(cache.keys ? ops::paged_attention(queries, *cache.keys, *cache.values, source.sequences, options)
                                 : ragged(queries, k, v, source.sequences, options, batch, &captured, comm));
  }
  if (!captured.empty()) {
    std::vector<at::Tensor>& seen = batch.capture->cross.emplace_back(std::move(captured[0]));
    for (size_t i = 0; captured.size() > 1 && i < seen.size() && seen[i].defined(); ++i) {
      std::vector<at::Tensor> of_streams{seen[i]};
      for (size_t stream = 1; stream < captured.size(); ++stream) of_streams.push_back(captured[stream][i]);
      seen[i] = at::cat(of_streams, 1);
    }
  }
  return (results.size() > 1 ? at::cat(results) : results[0]).reshape({x.size(0), heads_ * value_dim_});
}

}  // namespace pm::layers
