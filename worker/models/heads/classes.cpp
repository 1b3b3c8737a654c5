// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/classes.h"

#include <ATen/ATen.h>

namespace pm::models {

ClassesHead::ClassesHead(const policy::Model& model, const policy::Head& head, const policy::ClassesSpec& classes,
                         layers::Loader& loader)
    : ScoringHead(model, head, loader, classes.vector),
      divisor_(classes.divisor),
      mask_question_(classes.mask_question),
      transform_(classes.transform, loader) {
  if (classes.mlp) {
    block_.emplace(Block{layers::Mlp(*classes.mlp, loader), {}});
    if (classes.mlp->norm) block_->norm.emplace(*classes.mlp->norm, loader);
  }
  if (classes.linear) linear_.emplace(*classes.linear, loader);
}

at::Tensor ClassesHead::score(const at::Tensor& states, comm::Communicator& comm) const {
  at::Tensor x = states;
  if (block_) {
    x = block_->mlp(states, comm) + states;
    if (block_->norm) x = (*block_->norm)(x);
  }
  x = transform_(x);
  if (linear_) x = (*linear_)(x);
  return divisor_ == 1 ? x : x / divisor_;
}

at::Tensor ClassesHead::finish(const RequestForward& request, const at::Tensor&, const at::Tensor& scores) const {
  const at::Tensor lengths = mask_question_ ? request.inputs.head_input("question_lengths") : at::Tensor();
  if (!lengths.defined()) return scores;
  const StackInput& stack_input = request.inputs.stack_inputs.at(head_.stack);
  std::vector<at::Tensor> masks;
  for (size_t row = 0; row < stack_input.columns.size(); ++row) {
    const at::Tensor columns = stack_input.columns[row].to(scores.device());
    masks.push_back(at::logical_and(columns > 0, columns < lengths[static_cast<int64_t>(row)].to(scores.device())));
  }
  return scores - at::cat(masks).unsqueeze(1).to(scores.scalar_type()) * 1e6;
}

}  // namespace pm::models
