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
  at::Tensor of_sum(at::Tensor& x, const at::Tensor& residual) const;   ///< of x + residual, which x becomes

 private:
  policy::NormKind kind_;
  double eps_;
  at::Tensor gain_, bias_;
};

/// The states that blocks add to. What was added last waits for the norm that looks at the sum, so that both are one pass.
class Residual {
 public:
  explicit Residual(at::Tensor state) : state_(std::move(state)) {}
  const at::Tensor& sum();
  at::Tensor normed(const std::optional<Norm>&);   ///< norm(sum()); without a norm the sum
  void add(at::Tensor x);                          ///< x is nobody else's from here on

 private:
  at::Tensor state_, added_;
};

/// A matrix that every rank holds whole: [tokens, in] -> [tokens, out].
class Linear {
 public:
  Linear(const policy::Linear&, Loader&);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

/// Output features cut: no communication. Several linears may be stacked below each other (q, k, v).
class ColumnLinear {
 public:
  ColumnLinear(std::vector<const policy::Linear*>, Loader&);
  at::Tensor operator()(const at::Tensor& x) const;   ///< [tokens, in] -> [tokens, local out]

 private:
  at::Tensor bias() const;
  struct Some { int64_t row; Weight bias; };
  std::vector<Some> some_;   ///< where only some of the linears have a bias, and it is not held
  Weight bias_, weight_;     ///< in the order in which they are used
};

/// Input features cut: partial sums of all ranks are added, then the bias.
class RowLinear {
 public:
  RowLinear(const policy::Linear&, Loader&);
  at::Tensor operator()(const at::Tensor& x, comm::Communicator&) const;   ///< [tokens, local in] -> [tokens, out]
  /// This rank's summand, without the bias: for blocks whose sums go into one all-reduce.
  at::Tensor partial(const at::Tensor& x) const;
  const at::Tensor& bias() const { return bias_; }                         ///< undefined: none

 private:
  Weight weight_;
  at::Tensor bias_;
};

/// gelu, gelu_new, quick_gelu, relu, silu, tanh; "" leaves x as it is. Throws Error{Model, "UnsupportedPolicy"} for another name.
at::Tensor activate(const std::string& name, const at::Tensor& x);

class Mlp {
 public:
  Mlp(const policy::Mlp&, Loader&);
  at::Tensor operator()(const at::Tensor& x, comm::Communicator& comm) const { return down_(inner(x), comm); }
  at::Tensor partial(const at::Tensor& x) const { return down_.partial(inner(x)); }
  const at::Tensor& bias() const { return down_.bias(); }

 private:
  at::Tensor inner(const at::Tensor& x) const;
  std::string activation_;
  bool gated_;
  ColumnLinear in_;   ///< gate and up below each other, or up alone
  RowLinear down_;
};

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
  double scale_, softcap_;
  Weight bias_, weight_;   ///< in the order in which they are used
  Range rows_;
  std::vector<int64_t> columns_;
};

}  // namespace pm::layers
