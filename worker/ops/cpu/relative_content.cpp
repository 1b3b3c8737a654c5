// SPDX-License-Identifier: Apache-2.0
// CPU terms of attention scores by the content of relative positions: products with the rows that a sequence reads,
// then one sweep over the scores.
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "worker/ops/cpu/backend.h"
#include "worker/ops/cpu/thread_pool.h"

namespace pm::ops {

namespace {

constexpr int64_t tile = 16;  // queries; their scores, and the products of one key that they read, stay in the L1 cache

/// The queries and keys of a sequence, and the row of each distance that two of them may have.
struct Distances {
  std::vector<int64_t> queries, keys;  ///< where they stand: a query after the leftmost one, a key before the last one
  std::vector<int64_t> row_of;         ///< of the distances from that of the leftmost query to the last key on
  int64_t first_row = 0;
  int64_t rows() const { return row_of.back() + 1; }
};

Distances distances_of(const RelativeIndex& index, const RelativeSequence& sequence) {
  const at::Tensor columns = sequence.columns.contiguous(), key_columns = sequence.key_columns.contiguous(),
                   rows = index.rows.contiguous();
  const auto *column = columns.const_data_ptr<int64_t>(), *key_column = key_columns.const_data_ptr<int64_t>(),
             *row = rows.const_data_ptr<int64_t>();
  const int64_t queries = columns.numel(), keys = key_columns.numel();
  Distances distances;
  const auto [left, right] = std::minmax_element(column, column + queries);
  for (int64_t query = 0; query < queries; ++query) distances.queries.push_back(column[query] - *left);
  for (int64_t key = 0; key < keys; ++key) distances.keys.push_back(key_column[keys - 1] - key_column[key]);
  const int64_t least = *left - key_column[keys - 1], most = *right - key_column[0];
  distances.first_row = row[index.reach + least];
  for (int64_t distance = least; distance <= most; ++distance)
    distances.row_of.push_back(row[index.reach + distance] - distances.first_row);
  return distances;
}

/// Adds, for the queries [begin, end) of a head, by_query[query][row] + by_key[key][row], either of which may be null.
void add_tile(float* scores, const float* by_query, const float* by_key, const Distances& distances, int64_t begin,
              int64_t end) {
  const auto keys = static_cast<int64_t>(distances.keys.size());
  const int64_t rows = distances.rows();
  const int64_t* places = distances.queries.data();
  for (int64_t key = 0; key < keys; ++key) {
    const int64_t* row_of_query = distances.row_of.data() + distances.keys[static_cast<size_t>(key)];
    for (int64_t query = begin; query < end; ++query) {
      const int64_t row = row_of_query[places[query]];
      float sum = by_query ? by_query[query * rows + row] : 0;
      if (by_key) sum += by_key[key * rows + row];
      scores[query * keys + key] += sum;
    }
  }
}

}  // namespace

void CpuBackend::add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k,
                                      const RelativeContent& content, const RelativeSequence& sequence) const {
  const int64_t heads = scores.size(0), queries = scores.size(1), keys = scores.size(2);
  const Distances distances = distances_of(*content.index, sequence);
  const int64_t rows = distances.rows();
  // by each query or key of a head, its products with the rows that distances here read: [heads, tokens, rows]
  const auto products = [&](const at::Tensor& of_tokens, const at::Tensor& of_positions) {
    return at::bmm(of_tokens, of_positions.narrow(0, distances.first_row, rows).permute({1, 2, 0})).contiguous();
  };
  at::Tensor by_query, by_key;
  if (content.keys.defined()) by_query = products(q.permute({1, 0, 2}), content.keys);
  if (content.queries.defined()) by_key = products(k, content.queries);
  const auto head_of = [&](const at::Tensor& x, int64_t head) {
    return x.defined() ? x.const_data_ptr<float>() + head * x.size(1) * rows : nullptr;
  };
  scores = scores.contiguous();
  auto* all = scores.mutable_data_ptr<float>();
  const int64_t tiles = (queries + tile - 1) / tile;
  thread_pool().parallel_for(heads * tiles, [&](int64_t chunk) {
    const int64_t head = chunk / tiles, begin = chunk % tiles * tile;
    add_tile(all + head * queries * keys, head_of(by_query, head), head_of(by_key, head), distances, begin,
             std::min(queries, begin + tile));
  });
}

}  // namespace pm::ops
