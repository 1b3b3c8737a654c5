// The sharded building blocks. Each takes its parameters from a Loader, holds only the rank's part and knows what its block needs of the
// other ranks: row-cut linears end in one all-reduce of fp32 partials, summed in rank order, and add their bias once after it.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/layers/batch.h"
#include "worker/layers/loader.h"
#include "worker/policy/model.h"

namespace pm::layers {

/// LayerNorm or RMSNorm over the last dimension, in fp32.
class Norm {
 public:
  Norm(const policy::Norm&, Loader&);
  at::Tensor operator()(const at::Tensor& x) const;   ///< [tokens, hidden] -> same

 private:
  policy::NormKind kind_;
  double eps_;
  at::Tensor gain_, bias_;
};

/// Rows of a token table; each rank looks up its own and the sum over ranks is the embedding (Megatron's VocabParallelEmbedding).
class TokenEmbedding {
 public:
  TokenEmbedding(const policy::Param&, Loader&);
  at::Tensor operator()(const at::Tensor& tokens, comm::Communicator&) const;  ///< [tokens] int64 -> [tokens, hidden] fp32

 private:
  at::Tensor table_;
  Range rows_;
};

/// Output features cut: no communication. Several linears may be stacked below each other (q, k, v).
class ColumnLinear {
 public:
  ColumnLinear(std::vector<const policy::Linear*>, Loader&);
  at::Tensor operator()(const at::Tensor& x) const;   ///< [tokens, in] -> [tokens, local out]

 private:
  at::Tensor weight_, bias_;
};

/// Input features cut: partial sums of all ranks are added, then the bias.
class RowLinear {
 public:
  RowLinear(const policy::Linear&, Loader&);
  at::Tensor operator()(const at::Tensor& x, comm::Communicator&) const;   ///< [tokens, local in] -> [tokens, out]

 private:
  at::Tensor weight_, bias_;
};

/// Keys and values of all layers of one stack on this rank: [layers][blocks, kv_heads, 16, head_dim].
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

class SelfAttention {
 public:
  SelfAttention(const policy::Attention&, Loader&);
  /// [tokens, hidden] -> [tokens, hidden]; appends the tokens' keys and values to the layer's cache first.
  at::Tensor operator()(const at::Tensor& x, const Batch&, at::Tensor& keys, at::Tensor& values, comm::Communicator&) const;

 private:
  at::Tensor attend(const at::Tensor& q, const Batch&, at::Tensor& keys, at::Tensor& values, comm::Communicator&) const;
  ops::AttentionOptions options_;
  int64_t heads_, kv_heads_, head_dim_, all_heads_;
  std::vector<int64_t> heads_of_rank_;   ///< of every rank, for gathering attentions
  ColumnLinear qkv_;
  RowLinear out_;
};

class Mlp {
 public:
  Mlp(const policy::Mlp&, Loader&);
  at::Tensor operator()(const at::Tensor& x, comm::Communicator&) const;

 private:
  std::string activation_;
  std::optional<ColumnLinear> gate_;
  ColumnLinear up_;
  RowLinear down_;
};

/// gelu, gelu_new, quick_gelu, relu, silu, tanh. Throws Error{Model, "UnsupportedPolicy"} for another name.
at::Tensor activate(const std::string& name, const at::Tensor& x);

/// Scores over the vocabulary; each rank has those of its own rows.
class LogitsHead {
 public:
  LogitsHead(const policy::Head&, Loader&);
  /// [rows, hidden] -> this rank's columns [rows, local vocabulary] in fp32.
  at::Tensor local(const at::Tensor& x) const;
  /// All columns on rank 0 [rows, vocabulary]; undefined elsewhere.
  at::Tensor gathered(const at::Tensor& x, comm::Communicator&) const;
  /// This rank's first column, and every rank's number of columns.
  int64_t first() const { return rows_.begin; }
  const std::vector<int64_t>& columns() const { return columns_; }

 private:
  double scale_;
  at::Tensor weight_, bias_;
  Range rows_;
  std::vector<int64_t> columns_;
};

}  // namespace pm::layers
