// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/span_search.h"

#include <ATen/ATen.h>

namespace pm::models {

SpanSearch::SpanSearch(const policy::SpansSpec& spans, layers::Loader& loader)
    : starts_(spans.starts),
      ends_(spans.ends),
      start_(spans.start, loader),
      end_dense_(spans.end_dense, loader),
      end_(spans.end, loader),
      answer_dense_(spans.answer_dense, loader),
      answer_(spans.answer, loader) {
  if (spans.end_norm) end_norm_.emplace(*spans.end_norm, loader);
}

/// Scores one row's states [length, hidden] as last tokens for each of its first tokens [starts]: [length, starts].
at::Tensor SpanSearch::end_scores(const at::Tensor& states, const at::Tensor& starts) const {
  std::vector<at::Tensor> columns;
  for (int64_t i = 0; i < starts.size(0); ++i) {
    const at::Tensor first = at::index_select(states, 0, starts.narrow(0, i, 1)).expand_as(states);
    at::Tensor x = at::tanh(end_dense_(at::cat({states, first}, 1)));
    if (end_norm_) x = (*end_norm_)(x);
    columns.push_back(end_(x));
  }
  return at::cat(columns, 1);
}

SpanSearchResult SpanSearch::operator()(const at::Tensor& states, const at::Tensor& outside,
                                        const at::Tensor& token) const {
  constexpr double never = 1e30;
  const int64_t rows = states.size(0), length = states.size(1);
  const at::Tensor mask = outside.defined() ? outside.to(at::kFloat) : at::zeros({rows, length}, states.options());
  const at::Tensor begins =
      at::softmax(start_(states.flatten(0, 1)).reshape({rows, length}) * (1 - mask) - never * mask, -1);
  SpanSearchResult found;
  std::tie(found.start_probabilities, found.starts) = at::topk(begins, starts_, -1);
  std::vector<at::Tensor> scores;
  for (int64_t row = 0; row < rows; ++row) scores.push_back(end_scores(states[row], found.starts[row]));
  const at::Tensor wide = mask.unsqueeze(2), ends = at::softmax(at::stack(scores) * (1 - wide) - never * wide, 1);
  std::tie(found.end_probabilities, found.ends) = at::topk(ends, ends_, 1);
  found.end_probabilities = found.end_probabilities.reshape({rows, ends_ * starts_});
  found.ends = found.ends.reshape({rows, ends_ * starts_});
  const at::Tensor mean = at::bmm(begins.unsqueeze(1), states).squeeze(1),
                   column = token.defined() ? token : at::full({rows}, length - 1, states.options().dtype(at::kLong));
  const at::Tensor one =
      at::index_select(states.flatten(0, 1), 0, at::arange(rows, column.options()) * length + column);
  found.answer = answer_(at::tanh(answer_dense_(at::cat({mean, one}, 1)))).squeeze(1);
  return found;
}

}  // namespace pm::models
