// SPDX-License-Identifier: Apache-2.0
// Self-attention and cross-attention of a stack, and its KV cache.
#pragma once
#include "worker/layers/content_buckets.h"
#include "worker/layers/convolution/span_convolver.h"
#include "worker/layers/entity_queries.h"
#include "worker/layers/layers.h"
#include "worker/layers/patterns/chunked_attention.h"
#include "worker/layers/patterns/sparse_self_attention.h"
#include "worker/layers/projection_norms.h"
#include "worker/layers/recurrent/state.h"
#include "worker/layers/relative_content.h"
#include "worker/policy/spec/stack.h"

namespace pm::layers {

/// What the layers of one stack keep of sequences on this rank: keys and values [layers][blocks, kv_heads, 16,
/// head_dim], latents as keys [blocks, 1, 16, width] without values, and the states of recurrent layers, which have
/// no blocks. Keys and values may be codes (ops/kv_codes.h). Cross-attention uses blocks of the same pool with block
/// tables of its own. Layers that reuse keys and values have the tensors of the layer that they read; where
/// a pipeline stage lacks it, they have a copy together.
class KvCache {
 public:
  /// Allocates the cache of the layers [begin, end) of the stack on the loader's device, with states of `sequences`.
  /// Layers are numbered from 0 here. I8 makes codes of keys and values, on CPUs only.
  KvCache(const policy::Stack&, Range layers, const Loader&, int64_t blocks, DType, int64_t sequences);
  at::Tensor& keys(size_t layer) { return keys_[places_[layer]]; }
  at::Tensor& values(size_t layer) { return values_[places_[layer]]; }
  RecurrentStates& states() { return states_; }
  int64_t bytes() const { return arena_.bytes(); }  ///< of the blocks
  int64_t state_bytes() const { return states_.bytes(); }
  /// Copies keys and values of all layers; `pairs` are (from, to) blocks.
  void copy_blocks(std::span<const int32_t> pairs);

 private:
  ops::Arena arena_;
  std::vector<size_t> places_;             ///< of each layer among the tensors
  std::vector<at::Tensor> keys_, values_;  ///< undefined for recurrent layers, values also for latents
  RecurrentStates states_;
};

/// One layer's part of a KV cache; null for a forward pass without cache. A recurrent layer has a state in place of
/// keys and values.
struct LayerCache {
  at::Tensor *keys = nullptr, *values = nullptr;
  LayerState* state = nullptr;
};

/// Exchanges keys and values of kv heads that several ranks attend to. The rows of a head's projections are
/// partitioned over these ranks, so that no weight is held twice: with one kv head (Falcon-7B), replicating them
/// would take 1.8 % of a rank's bytes at n = 8. The projected rows are exchanged instead, at most 8 bytes per token and
/// row: half a KiB per token for one head of 64, against 18 KiB of the layer's all-reduce.
class SharedHeads {
 public:
  /// `rows` are the projection rows of every rank; `own` are the rows of the heads that this rank attends to.
  SharedHeads(std::vector<Range> rows, Range own, int rank, at::Device device);
  /// Exchanges this rank's columns of keys, then of values [tokens, 2 x its rows] for those of its own heads, keys
  /// then values [tokens, 2 x rows of `own`].
  at::Tensor exchanged(const at::Tensor& columns, comm::Communicator&) const;

 private:
  std::vector<int64_t> counts_;  ///< rows of each rank: keys and values
  at::Tensor own_;               ///< int64: indices of this rank's heads among all gathered rows
};

class Attention {
 public:
  Attention(const policy::Attention&, Loader&);
  /// Computes the result of this rank's heads [tokens, local heads x head_dim], of those that convolve too, from x
  /// [tokens, hidden], in its type, before the output projection; heads may have values of another width. With a cache,
  /// the tokens' keys and values are appended to it first. `rotation` is that of the layer's rotary embedding at the
  /// batch's positions; without angles nothing is rotated. Values are projected from `values` where that is defined.
  /// The rows of streams follow those of the main stream in x and in the result; only the main stream's keys and values
  /// come into the cache.
  at::Tensor self(const at::Tensor& x, const at::Tensor& values, const Batch&, const ops::Rotation& rotation,
                  LayerCache, comm::Communicator&) const;
  /// Attends to the states of `source` instead, by keys of these states with their added positions.
  at::Tensor cross(const at::Tensor& x, const Batch&, const Source&, LayerCache, comm::Communicator&) const;
  const RowLinear& out() const { return out_; }

 private:
  at::Tensor heads(const at::Tensor& rows, int64_t first, int64_t count) const;
  at::Tensor attend(const at::Tensor& x, const at::Tensor& values, const Batch&, const ops::Rotation&, LayerCache,
                    comm::Communicator&) const;
  at::Tensor values_of(const at::Tensor& keys_and_values) const;
  at::Tensor keys_and_values(const at::Tensor& projected, int64_t first, comm::Communicator&) const;
  at::Tensor ragged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ops::StepSequences&,
                    const ops::AttentionOptions&, const Batch&, std::vector<std::vector<at::Tensor>>* captured,
                    comm::Communicator&) const;
  at::Tensor sparse(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& x,
                    const Batch& batch, comm::Communicator&) const;
  at::Tensor with_entities(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& x,
                           const Batch&, const ops::AttentionOptions&, comm::Communicator&) const;
  at::Tensor projected(const at::Tensor& x, const at::Tensor& values) const;
  at::Tensor reusing(const at::Tensor& x, const Batch&, const ops::Rotation&, LayerCache, comm::Communicator&) const;
  at::Tensor in_chunks(const at::Tensor& x, const Batch&, comm::Communicator&) const;
  at::Tensor in_buckets(const at::Tensor& x, const Batch&, LayerCache, comm::Communicator&) const;
  at::Tensor with_relative_content(const at::Tensor& x, const Batch&, ops::AttentionOptions&) const;
  ops::AttentionOptions options() const;
  ops::AttentionOptions options_;  ///< without the relative position bias and the sinks
  Weight buckets_, sinks_;
  int64_t heads_, kv_heads_, head_dim_, value_dim_;
  std::vector<int64_t> heads_of_rank_;                      ///< heads of every rank, for gathering attentions
  std::optional<SharedHeads> shared_;                       ///< set where there are fewer kv heads than ranks
  std::optional<Norm> query_norm_, key_norm_, value_norm_;  ///< of each head's vector
  bool values_are_keys_;
  std::optional<int64_t> reuses_, reused_as_;  ///< as policy::Attention's
  ops::HeadNorms head_norms_;                  ///< the same for rotary_write
  bool crosses_, queries_apart_, norms_after_rotary_, in_patch_windows_;
  std::optional<RelativeTerms> relative_;             ///< read before the block's own projections
  std::optional<ContentBuckets> buckets_of_queries_;  ///< likewise
  ColumnLinear in_;                                   ///< stacked q, k, v; only q for cross-attention
  std::optional<ProjectionNorms> projection_norms_;
  std::optional<ColumnLinear> values_;  ///< v where it reads other states; then in_ is q and k, or source_ is k
  std::optional<ColumnLinear> source_;  ///< k, v of cross-attention, or where queries may read other states
  std::optional<EntityQueries> entity_queries_;
  std::optional<SpanConvolver> convolver_;     ///< of the heads behind those that attend
  std::optional<SparseSelfAttention> sparse_;  ///< instead of ops::ragged_attention
  std::optional<ChunkedAttention> chunked_;    ///< likewise
  std::optional<ColumnLinear> output_gate_;    ///< whose sigmoid multiplies the heads' results
  RowLinear out_;
};

}  // namespace pm::layers
