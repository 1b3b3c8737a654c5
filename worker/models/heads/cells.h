// SPDX-License-Identifier: Apache-2.0
// The head of table cells, as Hugging Face's TapasForQuestionAnswering has it.
#pragma once
#include "worker/models/heads/scoring.h"

namespace pm::models {

class CellsHead final : public ScoringHead {
 public:
  CellsHead(const policy::Model&, const policy::Head&, const policy::CellsSpec&, layers::Loader&);
  /// Refuses tables whose tokens do not say in which column and row they stand.
  static void validate(const policy::Model&, const policy::Head&, const policy::CellsSpec&);

 protected:
  at::Tensor score(const at::Tensor& states, comm::Communicator&) const override;
  at::Tensor finish(const RequestForward&, const at::Tensor& states, const at::Tensor& scores) const override;

 private:
  at::Tensor cells(const at::Tensor& states, const at::Tensor& scores, const at::Tensor& column,
                   const at::Tensor& row) const;
  const policy::CellsSpec& spec_;
  HeadTransform transform_;
  layers::Linear tokens_, columns_;
};

}  // namespace pm::models
