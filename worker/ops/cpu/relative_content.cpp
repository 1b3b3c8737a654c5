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

/// The tokens of a sequence: where they stand after the first one, and the row of each distance -reach .. reach.
struct Distances {
  std::vector<int64_t> places, row_of;
  int64_t reach() const { return places.back(); }
  int64_t rows() const { return row_of.back() + 1; }
};

Distances distances_of(const RelativeIndex& index, const at::Tensor& given_columns) {
  const at::Tensor columns = given_columns.contiguous(), rows = index.rows.contiguous();
  const auto *column = columns.const_data_ptr<int64_t>(), *row = rows.const_data_ptr<int64_t>();
  Distances distances;
  for (int64_t token = 0; token < columns.numel(); ++token) distances.places.push_back(column[token] - column[0]);
  const int64_t reach = distances.reach();
  for (int64_t distance = -reach; distance <= reach; ++distance)
    distances.row_of.push_back(row[index.reach + distance] - row[index.reach - reach]);
  return distances;
}

/// Adds, for the queries [begin, end) of a head, by_query[query][row] + by_key[key][row], either of which may be null.
void add_tile(float* scores, const float* by_query, const float* by_key, const Distances& distances, int64_t begin,
              int64_t end) {
  const auto tokens = static_cast<int64_t>(distances.places.size());
  const int64_t rows = distances.rows();
  const int64_t* places = distances.places.data();
  for (int64_t key = 0; key < tokens; ++key) {
    const int64_t* row_of_query = distances.row_of.data() + distances.reach() - places[key];
    for (int64_t query = begin; query < end; ++query) {
      const int64_t row = row_of_query[places[query]];
      float sum = by_query ? by_query[query * rows + row] : 0;
      if (by_key) sum += by_key[key * rows + row];
      scores[query * tokens + key] += sum;
    }
  }
}

}  // namespace

void CpuBackend::add_relative_content(at::Tensor& scores, const at::Tensor& q, const at::Tensor& k,
                                      const RelativeContent& content, const at::Tensor& columns) const {
  const int64_t heads = scores.size(0), tokens = scores.size(1);
  const Distances distances = distances_of(*content.index, columns);
  const int64_t rows = distances.rows(),
                first = content.index->rows[content.index->reach - distances.reach()].item<int64_t>();
  // by each query or key of a head, its products with the rows that distances here read: [heads, tokens, rows]
  const auto products = [&](const at::Tensor& of_tokens, const at::Tensor& of_positions) {
    return at::bmm(of_tokens, of_positions.narrow(0, first, rows).permute({1, 2, 0})).contiguous();
  };
  at::Tensor by_query, by_key;
  if (content.keys.defined()) by_query = products(q.permute({1, 0, 2}), content.keys);
  if (content.queries.defined()) by_key = products(k, content.queries);
  const auto head_of = [&](const at::Tensor& x, int64_t head) {
    return x.defined() ? x.const_data_ptr<float>() + head * tokens * rows : nullptr;
  };
  scores = scores.contiguous();
  auto* all = scores.mutable_data_ptr<float>();
  const int64_t tiles = (tokens + tile - 1) / tile;
  thread_pool().parallel_for(heads * tiles, [&](int64_t chunk) {
    const int64_t head = chunk / tiles, begin = chunk % tiles * tile;
    add_tile(all + head * tokens * tokens, head_of(by_query, head), head_of(by_key, head), distances, begin,
             std::min(tokens, begin + tile));
  });
}

}  // namespace pm::ops
