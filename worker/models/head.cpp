// See head.h.
#include "worker/models/head.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace pm::models {

Head::Head(const policy::Head& head, layers::Loader& loader) : activation_(head.activation) {
  if (head.dense) dense_.emplace(*head.dense, loader);
  if (head.norm) norm_.emplace(*head.norm, loader);
  if (head.logits) logits_.emplace(head, loader);
  if (head.classes) classes_.emplace(*head.classes, loader);
  if (head.cells) columns_.emplace(head.cells->columns, loader), table_ = *head.cells;
  if (head.spans) spans_.emplace(*head.spans, loader);
  if (head.pairs) query_.emplace(head.pairs->query, loader), key_.emplace(head.pairs->key, loader);
  if (head.scalar) temperature_ = std::exp(loader.load(*head.scalar).to(at::kDouble).item<double>());
}

at::Tensor Head::features(const at::Tensor& states) const {
  at::Tensor x = layers::activate(activation_, dense_ ? (*dense_)(states) : states);
  return norm_ ? (*norm_)(x) : x;
}

at::Tensor Head::scores(const at::Tensor& states, comm::Communicator& comm) const {
  const at::Tensor x = features(states);
  if (logits_) return logits_->gathered(x, comm);
  return classes_ ? (*classes_)(x) : x;
}

at::Tensor Head::cells(const at::Tensor& states, const at::Tensor& scores, const at::Tensor& column, const at::Tensor& row) const {
  constexpr double nearly_log_zero = -10000, nearly_zero = 1e-10;
  const int64_t cells = table_.rows * table_.across;
  const at::Tensor columns = column.clamp_max(table_.across - 1), cell = row.clamp_max(table_.rows - 1) * table_.across + columns;
  const at::Tensor tokens = at::zeros({cells}, states.options()).index_add_(0, cell, at::ones({cell.size(0)}, states.options())), there = (tokens > 0).to(at::kFloat);
  const auto of_cells = [&](const at::Tensor& of_tokens) { return at::zeros({cells}, states.options()).index_add_(0, cell, of_tokens) / tokens.clamp_min(1); };
  const auto of_columns = [&](const at::Tensor& values) { return values.reshape({table_.rows, table_.across}).sum(0); };
  const at::Tensor count = of_columns(there);
  at::Tensor chosen = of_columns(of_cells((*columns_)(features(states)).select(1, 0)) * there) / (count + nearly_zero);
  at::Tensor impossible = count < 0.5;   // columns that the table does not have; the first stands for none of them
  impossible[0] = !table_.empty;
  chosen = chosen + nearly_log_zero * impossible.to(at::kFloat);
  const auto best = chosen.argmax().item<int64_t>();
  const at::Tensor selected = at::logical_and(columns == best, columns != 0).to(at::kFloat);
  return at::index_select(of_cells(scores / table_.temperature), 0, cell) + nearly_log_zero * (1 - selected);
}

at::Tensor Head::pairs(const at::Tensor& states, const at::Tensor& chosen, const at::Tensor& kept, int64_t first) const {
  const int64_t rows = states.size(0), length = states.size(1), vectors = length - first;
  const at::Tensor columns = chosen.clamp_min(0) + (at::arange(rows, chosen.options()) * length).unsqueeze(1);
  const at::Tensor queries = (*query_)(at::index_select(states.flatten(0, 1), 0, columns.flatten())).reshape({rows, chosen.size(1), -1});
  const at::Tensor keys = (*key_)(states.narrow(1, first, vectors).flatten(0, 1)).reshape({rows, vectors, -1});
  const at::Tensor scores = at::bmm(queries, keys.transpose(1, 2)) / std::sqrt(static_cast<double>(keys.size(2)));
  return scores.masked_fill(kept.narrow(1, first, vectors).unsqueeze(1) == 0, static_cast<double>(std::numeric_limits<float>::lowest()));
}

}  // namespace pm::models
