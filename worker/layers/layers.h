// SPDX-License-Identifier: Apache-2.0
// The sharded building blocks of models. Each takes its parameters from a Loader, holds only the rank's shard and
// knows what it needs of the other ranks. A row-parallel linear ends in one all-reduce of F32 partial sums, added in
// rank order, and adds its bias once after it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/layers/batch.h"
#include "worker/layers/block_diagonal.h"
#include "worker/layers/loader.h"
#include "worker/ops/fused.h"
#include "worker/ops/sample.h"
#include "worker/policy/spec/head.h"

namespace pm::layers {

/// The types of activations in a stack: F32, or on a device that multiplies 16-bit numbers those that transformers has.
struct ActivationTypes {
  /// What products and attention read: results of norms, of column-parallel linears, of attention and of activations.
  at::ScalarType product = at::kFloat;
  /// The residual stream, and what blocks add to it. Sums over ranks are F32 until they are added.
  at::ScalarType residual = at::kFloat;
};

/// LayerNorm, RMSNorm or an affine map over the last dimension, in fp32.
class Norm {
 public:
  Norm(const policy::Norm&, Loader&);
  /// [tokens, hidden] -> same, rounded to `result`.
  at::Tensor operator()(const at::Tensor& x, at::ScalarType result = at::kFloat) const;
  /// Returns the norm of x + residual. x becomes the sum, in the type of the residual.
  at::Tensor of_sum(at::Tensor& x, const at::Tensor& residual, at::ScalarType result) const;
  ops::HeadNorm of_heads() const;  ///< this norm, for ops::rotary_write

 private:
  at::Tensor affine(const at::Tensor& x) const;
  policy::NormKind kind_;
  double eps_;
  at::Tensor weight_, bias_;
};

/// The residual stream, in the type of its first state. The last summand is added together with the next norm, in one
/// sweep over memory.
class Residual {
 public:
  explicit Residual(at::Tensor state) : state_(std::move(state)) {}
  const at::Tensor& sum();
  /// Returns norm(sum()), without a norm the sum, rounded to `result`.
  at::Tensor normed(const std::optional<Norm>&, at::ScalarType result);
  void add(at::Tensor x);  ///< takes ownership of x, which is written to; x may be F32

 private:
  at::Tensor state_, added_;
};

/// A linear that every rank holds in full: [tokens, in] -> [tokens, out].
class Linear {
 public:
  Linear(const policy::Linear&, Loader&);
  at::Tensor operator()(const at::Tensor& x) const;
  /// The same where outputs are compared with each other (ops::unrounded_linear).
  at::Tensor unrounded(const at::Tensor& x) const;
  /// Returns the product without the bias, for a sum over ranks to which the bias is added once.
  at::Tensor product(const at::Tensor& x) const;
  const at::Tensor& bias() const { return bias_; }  ///< undefined: none

 private:
  at::Tensor weight_, bias_;
  std::shared_ptr<const SavedSite> saved_;  ///< nullptr: no adapter may replace it
};

/// A column-parallel linear: output features are partitioned, no communication is needed. Several linears (q, k, v)
/// may be stacked. Its matrix may be block-diagonal.
class ColumnLinear {
 public:
  ColumnLinear(std::vector<const policy::Linear*>, Loader&);
  at::Tensor operator()(const at::Tensor& x) const;  ///< [tokens, in] -> [tokens, local out] in the type of x
  bool is_gathered() const { return weight_.is_gathered(); }

 private:
  /// One of several linears that are not stacked, because one of them is block-diagonal.
  struct Single {
    Weight bias;
    BlockDiagonal weight;
  };
  at::Tensor bias() const;
  std::vector<Single> singles_;
  struct Some {
    int64_t row;
    Weight bias;
  };
  std::vector<Some> some_;                       ///< set where only some linears have a bias and it is sharded
  Weight bias_, weight_;                         ///< in the order in which they are used
  std::shared_ptr<const AdapterSite> adapters_;  ///< nullptr: none may change it
};

/// A row-parallel linear: input features are partitioned, and an all-reduce adds the partial sums before the bias. Its
/// matrix may be block-diagonal.
class RowLinear {
 public:
  RowLinear(const policy::Linear&, Loader&);
  /// [tokens, local in] -> [tokens, out], rounded to `result`; a sum over several ranks is F32.
  at::Tensor operator()(const at::Tensor& x, comm::Communicator&, at::ScalarType result) const;
  /// Returns this rank's partial sum in F32 without the bias, for blocks that share one all-reduce.
  at::Tensor partial(const at::Tensor& x) const;
  const at::Tensor& bias() const { return bias_; }  ///< undefined: none

 private:
  Weight weight_;
  std::optional<BlockDiagonal> diagonal_;  ///< instead of weight_
  at::Tensor bias_;
  std::shared_ptr<const AdapterSite> adapters_;  ///< nullptr: none may change it
};

/// Column-parallel linears whose outputs every rank gets in full: an all-gather of small outputs, so that no matrix is
/// held twice.
class GatheredLinear {
 public:
  GatheredLinear(const std::vector<const policy::Linear*>&, Loader&);
  /// Returns what each linear makes of x [tokens, in]: [tokens, out]. One all-gather serves all.
  std::vector<at::Tensor> operator()(const at::Tensor& x, comm::Communicator&) const;

 private:
  ColumnLinear columns_;
  std::vector<int64_t> outputs_;  ///< of each linear
  std::vector<int64_t> counts_;   ///< outputs of all linears on each rank
  at::Tensor order_;              ///< int64: where the outputs lie among those that are gathered; undefined: in order
};

/// The LM head: scores over the vocabulary, whose rows are partitioned over ranks.
class LogitsHead {
 public:
  LogitsHead(const policy::LogitsSpec&, Loader&);
  /// Scores of `linear` alone.
  LogitsHead(const policy::Linear&, Loader&);
  /// Returns this rank's columns [rows, local vocabulary] in F32 from [rows, hidden].
  at::Tensor local(const at::Tensor& x) const;
  /// Returns the best of this rank's scores of each row, and their columns.
  ops::BestScores best(const at::Tensor& x) const;
  /// Returns all columns on rank 0 [rows, vocabulary]; undefined elsewhere.
  at::Tensor gathered(const at::Tensor& x, comm::Communicator&) const;
  /// The first column of this rank, and the number of columns of every rank.
  int64_t first() const { return rows_.begin; }
  const std::vector<int64_t>& columns() const { return columns_; }

 private:
  double softcap_ = 0;
  Weight bias_, weight_, concat_;           ///< in the order in which they are used
  std::shared_ptr<const SavedSite> saved_;  ///< nullptr: no adapter may replace it
  Range rows_;
  std::vector<int64_t> columns_;
};

}  // namespace pm::layers
