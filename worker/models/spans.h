// Searches an answer in the states of a text, as XLNet's head for SQuAD 2.0 does.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "worker/layers/layers.h"
#include "worker/policy/model.h"

namespace pm::models {

/// Of each row: the likeliest first tokens, for each of them the likeliest last ones, and a score that there is no answer.
struct FoundSpans {
  at::Tensor start_probabilities, starts;   ///< [rows, starts] fp32 and int64, falling; transformers calls the probabilities log_probs
  at::Tensor end_probabilities, ends;       ///< [rows, ends x starts]: the likeliest last token of each first one, the second likeliest of each, ...
  at::Tensor answer;                        ///< [rows]
};

class Spans {
 public:
  Spans(const policy::Spans&, layers::Loader&);
  /// States [rows, length, hidden], zero where there is padding: it is searched too, as transformers does. `outside` [rows, length]: 1 where no answer begins or ends; undefined:
  /// nowhere. `token` [rows] int64: the column of the token by which it is told whether there is an answer; undefined: the last.
  FoundSpans operator()(const at::Tensor& states, const at::Tensor& outside, const at::Tensor& token) const;

 private:
  at::Tensor end_scores(const at::Tensor& states, const at::Tensor& starts) const;
  int64_t starts_, ends_;
  layers::Linear start_, end_dense_, end_, answer_dense_, answer_;
  std::optional<layers::Norm> end_norm_;
};

}  // namespace pm::models
