// See layers.h: column- and row-cut linears, the language-model head.
#include <ATen/ATen.h>

#include "worker/layers/layers.h"
#include "worker/ops/linear.h"

namespace pm::layers {

Linear::Linear(const policy::Linear& linear, Loader& loader) : weight_(loader.load(linear.weight)) {
  weight_ = weight_.dim() == 1 ? weight_.unsqueeze(0) : weight_.flatten(1);
  if (linear.bias) bias_ = loader.load(*linear.bias);
}

at::Tensor Linear::operator()(const at::Tensor& x) const { return ops::linear(x, weight_, bias_); }

ColumnLinear::ColumnLinear(std::vector<const policy::Linear*> linears, Loader& loader) {
  std::vector<const policy::Param*> weights, biases;
  for (const policy::Linear* linear : linears) {
    weights.push_back(&linear->weight);
    if (linear->bias) biases.push_back(&*linear->bias);
  }
  weight_ = loader.load_rows(weights);
  if (biases.size() == linears.size()) {
    bias_ = loader.load_rows(biases);
  } else if (!biases.empty()) {   // only some have a bias (q and v of DeBERTa): zeros for the others
    bias_ = at::zeros({weight_.size(0)}, weight_.scalar_type());
    int64_t row = 0;
    for (const policy::Linear* linear : linears) {
      const int64_t rows = policy::local_shape(linear->weight, loader.range(linear->weight))[0];
      if (linear->bias) bias_.narrow(0, row, rows).copy_(loader.load(*linear->bias));
      row += rows;
    }
  }
}

at::Tensor ColumnLinear::operator()(const at::Tensor& x) const { return ops::linear(x, weight_, bias_); }

RowLinear::RowLinear(const policy::Linear& linear, Loader& loader) : weight_(loader.load(linear.weight)) {
  if (linear.bias) bias_ = loader.load(*linear.bias);
}

at::Tensor RowLinear::operator()(const at::Tensor& x, comm::Communicator& comm) const {
  if (comm.size() == 1) return ops::linear(x, weight_, bias_);
  at::Tensor y = ops::linear(x, weight_);
  comm.all_reduce(y);
  return bias_.defined() ? y.add_(bias_) : y;
}

at::Tensor RowLinear::partial(const at::Tensor& x) const { return ops::linear(x, weight_); }

LogitsHead::LogitsHead(const policy::Head& head, Loader& loader)
    : scale_(head.scale_input), softcap_(head.softcap), weight_(loader.load(head.logits->weight)), rows_(loader.range(head.logits->weight)) {
  if (head.logits->bias) bias_ = loader.load(*head.logits->bias);
  for (int rank = 0; rank < loader.cuts().ranks(); ++rank) columns_.push_back(policy::range_of(head.logits->weight, loader.cuts(), rank).size());
}

at::Tensor LogitsHead::local(const at::Tensor& x) const {
  at::Tensor scores = ops::linear(scale_ == 1 ? x : x * scale_, weight_, bias_);
  return softcap_ > 0 ? scores.div_(softcap_).tanh_().mul_(softcap_) : scores;
}

at::Tensor LogitsHead::gathered(const at::Tensor& x, comm::Communicator& comm) const {
  const at::Tensor part = local(x);
  if (comm.size() == 1) return part;
  at::Tensor columns = comm.gatherv(part.t().contiguous(), columns_, 0);
  return comm.rank() == 0 ? columns.t() : at::Tensor();
}

}  // namespace pm::layers
