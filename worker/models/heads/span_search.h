// SPDX-License-Identifier: Apache-2.0
// Searches answer spans in the states of a text, as XLNet's head for SQuAD 2.0 does.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

#include "worker/layers/layers.h"
#include "worker/policy/spec/head.h"

namespace pm::models {

/// The result of the search for each row: the most likely first tokens, for each of them the most likely last tokens,
/// and a score that there is no answer.
struct SpanSearchResult {
  at::Tensor start_probabilities,
      starts;  ///< [rows, starts] F32 and int64, descending; transformers calls the probabilities log_probs
  at::Tensor end_probabilities,
      ends;  ///< [rows, ends x starts]: the most likely last token of each first one, then the second most likely, ...
  at::Tensor answer;  ///< [rows]
};

class SpanSearch {
 public:
  SpanSearch(const policy::SpansSpec&, layers::Loader&);
  /// `states` [rows, length, hidden] are zero at padding, which is searched too, as transformers does. `outside`
  /// [rows, length] is 1 where no answer begins or ends; undefined: nowhere. `token` [rows] int64 is the column of
  /// the token that scores whether there is an answer; undefined: the last.
  SpanSearchResult operator()(const at::Tensor& states, const at::Tensor& outside, const at::Tensor& token) const;

 private:
  at::Tensor end_scores(const at::Tensor& states, const at::Tensor& starts) const;
  int64_t starts_, ends_;
  layers::Linear start_, end_dense_, end_, answer_dense_, answer_;
  std::optional<layers::Norm> end_norm_;
};

}  // namespace pm::models
