// Attention of a stack to itself or to another stack's states, and the cache of keys and values.
#pragma once
#include "worker/layers/layers.h"
#include "worker/layers/rotary.h"

namespace pm::layers {

/// Keys and values of all layers of one stack on this rank: [layers][blocks, kv_heads, 16, head_dim]. Cross-attention's lie in the same blocks'
/// pool, under tables of their own.
class KvCache {
 public:
  KvCache(const policy::Stack&, const Loader&, int64_t blocks, DType);
  at::Tensor& keys(size_t layer) { return keys_[layer]; }
  at::Tensor& values(size_t layer) { return values_[layer]; }
  int64_t bytes() const { return arena_.bytes(); }

 private:
  ops::Arena arena_;
  std::vector<at::Tensor> keys_, values_;
};

/// The layer's part of a cache; absent for a pass that keeps nothing.
struct LayerCache { at::Tensor *keys = nullptr, *values = nullptr; };

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
  at::Tensor ragged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::span<const ops::SequenceSpan>, const Batch&,
                    std::vector<std::vector<at::Tensor>>* captured, comm::Communicator&) const;
  ops::AttentionOptions options_;
  int64_t heads_, kv_heads_, head_dim_;
  std::vector<int64_t> heads_of_rank_;   ///< of every rank, for gathering attentions
  std::optional<Rotary> rotary_;
  bool crosses_;
  ColumnLinear in_;                      ///< q, k, v below each other; of cross-attention q only
  std::optional<ColumnLinear> source_;   ///< of cross-attention: k, v
  RowLinear out_;
};

}  // namespace pm::layers
