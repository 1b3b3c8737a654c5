// Attention of a stack to itself or to another stack's states, and the cache of keys and values.
#pragma once
#include "worker/layers/layers.h"
#include "worker/layers/rotary.h"

namespace pm::layers {

/// Keys and values of one stack's layers on this rank: [layers][blocks, kv_heads, 16, head_dim]. Cross-attention's lie in the same blocks'
/// pool, under tables of their own.
class KvCache {
 public:
  /// Of the layers [begin, end) of the stack; numbered from 0 here.
  /// On the loader's device.
  KvCache(const policy::Stack&, Range layers, const Loader&, int64_t blocks, DType);
  size_t layers() const { return keys_.size(); }
  at::Tensor& keys(size_t layer) { return keys_[layer]; }
  at::Tensor& values(size_t layer) { return values_[layer]; }
  int64_t bytes() const { return arena_.bytes(); }
  /// Copies keys and values of all layers: pairs (from, to) of blocks.
  void copy_blocks(std::span<const int32_t> pairs);

 private:
  ops::Arena arena_;
  std::vector<at::Tensor> keys_, values_;
};

/// The layer's part of a cache; absent for a pass that keeps nothing.
struct LayerCache { at::Tensor *keys = nullptr, *values = nullptr; };

/// Keys and values of kv heads that several ranks attend to. A head's projections are cut by rows among these ranks, so that no rank holds a
/// weight that another holds too: with one kv head (Falcon-7B) whole copies would be 1.8 % of a rank's bytes at n = 8. What is exchanged
/// instead is what the rows make, 8 bytes per token and row of the layer: half a KiB a token for one head of 64, against 18 KiB of the layer's
/// all-reduce.
class SharedHeads {
 public:
  /// `rows`: of every rank, in units of rows of the projection; `own`: rows of the heads that this rank attends to.
  SharedHeads(std::vector<Range> rows, Range own, int rank, at::Device device);
  /// This rank's columns of keys, then of values [tokens, 2 x its rows] -> those of its own heads, keys then values [tokens, 2 x rows of `own`].
  at::Tensor exchanged(const at::Tensor& columns, comm::Communicator&) const;

 private:
  std::vector<int64_t> counts_;   ///< rows that each rank gives: of keys and of values
  at::Tensor own_;                ///< int64: of all gathered rows, those of this rank's heads
};

class Attention {
 public:
  Attention(const policy::Attention&, Loader&);
  /// x [tokens, hidden] -> this rank's heads' result [tokens, local heads x head_dim], before the output projection. With a cache the
  /// tokens' keys and values are appended to it first.
  at::Tensor self(const at::Tensor& x, const Batch&, LayerCache, comm::Communicator&) const;
  /// As self, against the source's states.
  at::Tensor cross(const at::Tensor& x, const Batch&, const Source&, LayerCache, comm::Communicator&) const;
  const RowLinear& out() const { return out_; }

 private:
  at::Tensor heads(const at::Tensor& rows, int64_t first, int64_t count) const;
  at::Tensor keys_and_values(const at::Tensor& projected, int64_t first, comm::Communicator&) const;
  at::Tensor ragged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ops::Sequences&, const ops::AttentionOptions&, const Batch&,
                    std::vector<std::vector<at::Tensor>>* captured, comm::Communicator&) const;
  ops::AttentionOptions options() const;
  ops::AttentionOptions options_;        ///< but for the table of buckets
  Weight buckets_;
  int64_t heads_, kv_heads_, head_dim_;
  std::vector<int64_t> heads_of_rank_;   ///< of every rank, for gathering attentions
  std::optional<SharedHeads> shared_;    ///< where kv heads are fewer than ranks
  std::optional<Norm> query_norm_, key_norm_;   ///< of each head's vector
  std::optional<Rotary> rotary_;
  bool crosses_;
  ColumnLinear in_;                      ///< q, k, v below each other; of cross-attention q only
  std::optional<ColumnLinear> source_;   ///< of cross-attention: k, v
  RowLinear out_;
};

}  // namespace pm::layers
