// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/relative_content.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace pm::layers {

at::Tensor relative_rows(const at::Tensor& distance, int64_t span, int64_t max_distance) {
  at::Tensor row = distance;
  if (max_distance > 0) {
    const int64_t exact = span / 2;
    // This is the order of fp32 operations of DeBERTa-v2, so that the edges of shared rows are the same.
    const at::Tensor away = distance.abs(),
                     whole = at::tensor(static_cast<double>(max_distance - 1) / static_cast<double>(exact), at::kFloat);
    const at::Tensor logarithmic =
        at::ceil(at::log(away.to(at::kFloat) / exact) / at::log(whole) * (exact - 1)) + exact;
    row = at::where(away <= exact, distance, (logarithmic * at::sign(distance)).to(at::kLong));
  }
  return (row + span).clamp(0, 2 * span - 1);
}

RelativeTable::RelativeTable(const policy::RelativeContent& content, Loader& loader)
    : table_(content.table, loader), span_(content.span), max_distance_(content.max_distance) {
  if (content.norm) norm_.emplace(*content.norm, loader);
}

RelativeRows RelativeTable::operator()(const Batch& batch, at::Device device, comm::Communicator& comm) const {
  RelativeRows rows;
  for (size_t i = 0; i < batch.sequences.spans.size(); ++i) {
    const int64_t tokens = batch.sequences.spans[i].tokens;
    const bool padded = i < batch.columns.size() && !batch.columns[i].columns.empty();
    at::Tensor columns = padded ? at::tensor(batch.columns[i].columns, at::kLong) : at::arange(tokens, at::kLong);
    const auto* places = columns.const_data_ptr<int64_t>();
    rows.index.reach = std::max(rows.index.reach, places[tokens - 1] - places[0]);
    rows.index.columns.push_back(columns.to(device));
  }
  const int64_t reach = rows.index.reach;
  const at::Tensor read = relative_rows(at::arange(-reach, reach + 1, at::kLong), span_, max_distance_);
  const auto* all = read.const_data_ptr<int64_t>();
  const int64_t first = all[0], last = all[2 * reach];
  rows.index.rows = (read - first).to(device);
  rows.states = table_.partial(at::arange(first, last + 1, at::TensorOptions(at::kLong).device(device)));
  if (comm.size() > 1) {
    rows.states = rows.states.contiguous();
    comm.all_reduce(rows.states);
  }
  if (norm_) rows.states = (*norm_)(rows.states);
  return rows;
}

RelativeTerms::Term::Term(const std::optional<policy::RelativeContent::Term>& term, Loader& loader)
    : present(term.has_value()), shared(term && term->shared) {
  if (present && !shared) projection.emplace(std::vector<const policy::Linear*>{&term->projection}, loader);
}

RelativeTerms::RelativeTerms(const policy::RelativeContent& content, Loader& loader)
    : key_(content.content_to_position, loader), query_(content.position_to_content, loader) {}

bool RelativeTerms::shares() const { return key_.shared || query_.shared; }

/// Returns the projected rows [rows, heads, head_dim]: of the term's own linear, or the columns of `shared` from head
/// `first` on.
at::Tensor RelativeTerms::projected(const Term& term, const at::Tensor& rows, const at::Tensor& shared, int64_t first,
                                    int64_t heads, int64_t head_dim) const {
  if (!term.present) return {};
  const at::Tensor columns =
      term.shared ? shared.narrow(1, first * head_dim, heads * head_dim) : (*term.projection)(rows);
  return columns.reshape({rows.size(0), heads, head_dim});
}

ops::RelativeContent RelativeTerms::operator()(const RelativeRows& rows, const at::Tensor& shared, int64_t heads,
                                               int64_t head_dim) const {
  return {.keys = projected(key_, rows.states, shared, heads, heads, head_dim),
          .queries = projected(query_, rows.states, shared, 0, heads, head_dim),
          .index = &rows.index};
}

}  // namespace pm::layers
