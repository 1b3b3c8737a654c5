// A task head: a transform of states, then scores over the vocabulary or classes.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "worker/layers/layers.h"
#include "worker/models/spans.h"
#include "worker/policy/model.h"

namespace pm::models {

class Head {
 public:
  Head(const policy::Head&, layers::Loader&);
  /// norm(act(dense(states))); absent parts are left out. [rows, hidden] -> [rows, width].
  at::Tensor features(const at::Tensor& states) const;
  /// Scores [rows, columns] of states: of the whole vocabulary on rank 0 only (undefined elsewhere), of classes on every rank.
  at::Tensor scores(const at::Tensor& states, comm::Communicator&) const;
  /// Scores [tokens] of one sequence whose tokens stand in `column` and `row` of a table [tokens] int64, 0 outside of it: the mean over each cell of the column
  /// that is likeliest, 10,000 less in all others, as Hugging Face's TapasForQuestionAnswering gives them. `states` [tokens, hidden], `scores` [tokens].
  at::Tensor cells(const at::Tensor& states, const at::Tensor& scores, const at::Tensor& column, const at::Tensor& row) const;
  /// Of a head that searches spans.
  const Spans& spans() const { return *spans_; }
  /// Scores [rows, chosen, vectors] of chosen tokens with the dense vectors that stand in the columns from `first` on, by their states [rows, length, hidden]. `chosen` [rows,
  /// chosen] int64: columns, -1: the first. Where `kept` [rows, length] is 0 the lowest number, as transformers has there.
  at::Tensor pairs(const at::Tensor& states, const at::Tensor& chosen, const at::Tensor& kept, int64_t first) const;
  /// Absent for heads of classes.
  const layers::LogitsHead* logits() const { return logits_ ? &*logits_ : nullptr; }
  /// exp(scalar) of a similarity.
  double temperature() const { return temperature_; }

 private:
  std::optional<layers::Linear> dense_, classes_, columns_, query_, key_;
  policy::Cells table_;
  std::optional<Spans> spans_;
  std::string activation_;
  std::optional<layers::Norm> norm_;
  std::optional<layers::LogitsHead> logits_;
  double temperature_ = 1;
};

}  // namespace pm::models
