// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/cells.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::models {

void CellsHead::validate(const policy::Model& model, const policy::Head& head, const policy::CellsSpec&) {
  const policy::Stack* stack = model.stack(head.stack);
  const auto tells = [&](const char* key) {
    return std::any_of(stack->input.tables.begin(), stack->input.tables.end(),
                       [&](const policy::IndexTable& table) { return table.key() == key; });
  };
  if (stack && (!tells("token_type_ids.1") || !tells("token_type_ids.2")))
    policy::refuse_architecture(model, "has cells without one score per token, or without their columns and rows");
}

CellsHead::CellsHead(const policy::Model& model, const policy::Head& head, const policy::CellsSpec& cells,
                     layers::Loader& loader)
    : ScoringHead(model, head, loader, /*one_column=*/true),
      spec_(cells),
      transform_(cells.transform, loader),
      tokens_(cells.tokens, loader),
      columns_(cells.columns, loader) {}

at::Tensor CellsHead::score(const at::Tensor& states, comm::Communicator&) const { return tokens_(transform_(states)); }

at::Tensor CellsHead::finish(const RequestForward& request, const at::Tensor& states, const at::Tensor& scores) const {
  const layers::Batch& batch = request.inputs.stack_inputs.at(head_.stack).batch;
  const at::Tensor &column = batch.types.at("token_type_ids.1"), &row = batch.types.at("token_type_ids.2");
  std::vector<at::Tensor> all;
  for (const ops::SequenceSpan& sequence : batch.sequences.spans) {
    const auto own = [&](const at::Tensor& values) { return values.narrow(0, sequence.first, sequence.tokens); };
    all.push_back(cells(own(states), own(scores).select(1, 0), own(column), own(row)));
  }
  return at::cat(all).unsqueeze(1);
}

/// Scores [tokens] of one sequence whose tokens stand in `column` and `row` of a table [tokens] int64, 0 outside of it:
/// the mean over each cell of the most likely column, 10,000 less in all others. `states` [tokens, hidden], `scores`
/// [tokens].
at::Tensor CellsHead::cells(const at::Tensor& states, const at::Tensor& scores, const at::Tensor& column,
                            const at::Tensor& row) const {
  constexpr double nearly_log_zero = -10000, nearly_zero = 1e-10;
  const int64_t cells = spec_.rows * spec_.across;
  const at::Tensor columns = column.clamp_max(spec_.across - 1),
                   cell = row.clamp_max(spec_.rows - 1) * spec_.across + columns;
  const at::Tensor tokens = at::zeros({cells}, states.options())
                                .index_add_(0, cell, at::ones({cell.size(0)}, states.options())),
                   there = (tokens > 0).to(at::kFloat);
  const auto of_cells = [&](const at::Tensor& of_tokens) {
    return at::zeros({cells}, states.options()).index_add_(0, cell, of_tokens) / tokens.clamp_min(1);
  };
  const auto of_columns = [&](const at::Tensor& values) { return values.reshape({spec_.rows, spec_.across}).sum(0); };
  const at::Tensor count = of_columns(there);
  at::Tensor chosen = of_columns(of_cells(columns_(transform_(states)).select(1, 0)) * there) / (count + nearly_zero);
  at::Tensor impossible = count < 0.5;  // columns that the table does not have; the first stands for none of them
  impossible[0] = !spec_.empty;
  chosen = chosen + nearly_log_zero * impossible.to(at::kFloat);
  const auto best = chosen.argmax().item<int64_t>();
  const at::Tensor selected = at::logical_and(columns == best, columns != 0).to(at::kFloat);
  return at::index_select(of_cells(scores / spec_.temperature), 0, cell) + nearly_log_zero * (1 - selected);
}

}  // namespace pm::models
