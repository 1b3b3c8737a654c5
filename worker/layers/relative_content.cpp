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

at::Tensor relative_sinusoids(const at::Tensor& distance, int64_t hidden) {
  // in F32, as transformers has the angles: far distances turn on their last bit
  const at::Tensor exponents = at::arange(0, hidden, 2, at::kFloat) / static_cast<double>(hidden);
  const at::Tensor frequencies = at::reciprocal(at::pow(10000, exponents)).to(distance.device());
  const at::Tensor angles = distance.to(at::kFloat).unsqueeze(1) * frequencies;
  return at::cat({at::sin(angles), at::cos(angles)}, 1);
}

RelativeTable::RelativeTable(const policy::RelativeContent& content, int64_t hidden, Loader& loader)
    : hidden_(hidden),
      span_(content.span),
      max_distance_(content.max_distance),
      class_apart_(content.class_apart),
      vectors_(content.head_vectors.has_value()),
      segments_(content.segments ? content.segments->input : "") {
  if (content.table) table_.emplace(*content.table, loader);
  if (content.norm) norm_.emplace(*content.norm, loader);
}

RelativeRows RelativeTable::operator()(const Batch& batch, at::Device device, comm::Communicator& comm) const {
  std::vector<ops::RelativeSequence> sequences;
  for (size_t i = 0; i < batch.sequences.spans.size(); ++i) {
    const ops::SequenceSpan& span = batch.sequences.spans[i];
    const bool padded = i < batch.columns.size() && !batch.columns[i].columns.empty();
    ops::RelativeSequence& own = sequences.emplace_back();
    if (batch.slots.defined()) {  // keys of earlier tokens come from the cache
      own.columns = at::arange(span.context, span.context + span.tokens, at::kLong);
      own.key_columns = at::arange(span.keys, at::kLong);
    } else {
      own.columns = padded ? at::tensor(batch.columns[i].columns, at::kLong) : at::arange(span.tokens, at::kLong);
      own.key_columns = own.columns.narrow(0, span.key_row - span.first, span.keys);
    }
    if (i < batch.hidden.size() && batch.hidden[i].defined()) own.hidden = batch.hidden[i].to(device);
    if (class_apart_) own.queries_apart = 1, own.keys_apart = span.key_row == span.first ? 1 : 0;
    if (segments_.empty()) continue;
    own.segments = batch.types.at(segments_).narrow(0, span.first, span.tokens);
    own.key_segments = batch.types.at(segments_).narrow(0, span.key_row, span.keys);
  }
  return rows(std::move(sequences), 1, device, comm);
}

RelativeRows RelativeTable::operator()(const PooledRows& queries, const PooledRows& keys, const Batch& batch,
                                       at::Device device, comm::Communicator& comm) const {
  std::vector<ops::RelativeSequence> sequences;
  const auto segments = [&](const PooledRows& rows) {
    return segments_.empty() ? at::Tensor() : at::index_select(batch.types.at(segments_), 0, rows.tokens.to(device));
  };
  const at::Tensor of_queries = segments(queries), of_keys = segments(keys);
  for (size_t i = 0; i < queries.spans.size(); ++i) {
    const ops::SequenceSpan &query = queries.spans[i], &key = keys.spans[i];
    const auto places = [](const RowColumns& columns, int64_t first, int64_t count) {
      return at::arange(first, first + count, at::kLong) * columns.step + columns.start;
    };
    ops::RelativeSequence& own = sequences.emplace_back();
    own.columns = places(queries.columns[i], 0, query.tokens);
    own.key_columns = places(keys.columns[i], key.key_row - key.first, key.keys);
    if (class_apart_) own.queries_apart = 1, own.keys_apart = key.key_row == key.first ? 1 : 0;
    if (segments_.empty()) continue;
    own.segments = of_queries.narrow(0, query.first, query.tokens);
    own.key_segments = of_keys.narrow(0, key.key_row, key.keys);
  }
  return rows(std::move(sequences), std::min(queries.step(), keys.step()), device, comm);
}

/// Makes the rows that the distances of these queries and keys read. Distances are multiples of `step`.
RelativeRows RelativeTable::rows(std::vector<ops::RelativeSequence> sequences, int64_t step, at::Device device,
                                 comm::Communicator& comm) const {
  RelativeRows rows;
  int64_t reach = 0;
  for (ops::RelativeSequence& own : sequences) {
    const auto *column = own.columns.const_data_ptr<int64_t>(), *key = own.key_columns.const_data_ptr<int64_t>();
    const auto [left, right] = std::minmax_element(column, column + own.columns.numel());  // targets stand anywhere
    reach = std::max({reach, *right - key[0], key[own.key_columns.numel() - 1] - *left});
    own.columns = own.columns.to(device);
    own.key_columns = own.key_columns.to(device);
  }
  reach = rows.index.reach = (reach + step - 1) / step * step;
  const int64_t span = span_ / step + (span_ % step ? 1 : 0);
  const at::Tensor distance = at::arange(-reach, reach + 1, at::kLong);
  const auto row_of = [&] {
    if (vectors_) return (distance + span_ - 1).clamp(0, 2 * span_ - 2);
    return table_ ? relative_rows(distance, span_, max_distance_) : at::floor_divide(distance, step).clamp(-span, span);
  };
  const at::Tensor read = row_of();
  const auto* all = read.const_data_ptr<int64_t>();
  const int64_t first = all[0], last = all[2 * reach];
  rows.index.rows = (read - first).to(device);
  rows.index.sequences = std::move(sequences);
  rows.first = first;
  rows.count = last - first + 1;
  if (vectors_) return rows;
  const at::Tensor numbers = at::arange(first, last + 1, at::TensorOptions(at::kLong).device(device));
  rows.states = table_ ? table_->partial(numbers) : relative_sinusoids((numbers * step).clamp(-span_, span_), hidden_);
  if (table_ && comm.size() > 1) {
    rows.states = rows.states.contiguous();
    comm.all_reduce(rows.states);
  }
  if (norm_) rows.states = (*norm_)(rows.states);
  return rows;
}

RelativeTerms::Term::Term(const std::optional<policy::RelativeContent::Term>& term, Loader& loader)
    : present(term.has_value()), shared(term && term->shared) {
  if (present && !shared) projection.emplace(std::vector<const policy::Linear*>{&term->projection}, loader);
  if (term && term->query_bias) query_bias = loader.weight(*term->query_bias);
}

RelativeTerms::RelativeTerms(const policy::RelativeContent& content, Loader& loader)
    : key_(content.content_to_position, loader), query_(content.position_to_content, loader) {
  if (content.head_vectors) {
    vectors_ = loader.weight(content.head_vectors->vectors);
    vectors_meet_keys_ = content.head_vectors->meet_keys;
    factor_ = content.head_vectors->factor;
  }
  if (content.content_bias) content_bias_ = loader.weight(*content.content_bias);
  if (!content.segments) return;
  segments_ = loader.weight(content.segments->states);
  segment_bias_ = loader.weight(content.segments->query_bias);
  others_first_ = content.segments->others_first;
  common_segment_ = content.segments->common;
}

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
  const auto of_heads = [&](const Weight& weight, int64_t rows = 1) {
    return weight.defined() ? weight.value().to(at::kFloat).reshape({rows, heads, head_dim}) : at::Tensor();
  };
  ops::RelativeContent content;
  content.index = &rows.index;
  if (vectors_.defined()) {
    at::Tensor own = vectors_.value().narrow(0, rows.first, rows.count).to(at::kFloat);
    if (factor_ != 1) own = own * factor_;
    content.keys = own.unsqueeze(1).expand({rows.count, heads, head_dim});
    if (vectors_meet_keys_) content.queries = content.keys;
    return content;
  }
  content.keys = projected(key_, rows.states, shared, heads, heads, head_dim);
  content.key_bias = of_heads(key_.query_bias);
  content.queries = projected(query_, rows.states, shared, 0, heads, head_dim);
  content.content_bias = of_heads(content_bias_);
  content.segments = of_heads(segments_, 2);
  if (others_first_) content.segments = content.segments.flip(0);
  content.common_segment = common_segment_;
  content.segment_bias = of_heads(segment_bias_);
  return content;
}

}  // namespace pm::layers
