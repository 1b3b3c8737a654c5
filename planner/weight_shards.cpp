// SPDX-License-Identifier: Apache-2.0
#include "planner/weight_shards.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/memory.h"

namespace pm {

namespace {

constexpr int64_t cut_at = 64;  ///< bytes: shards begin at cache lines, so no element is split

using Place = std::pair<std::string, int>;

bool is_table(const Part& part) { return part.axis == Axis::Vocab || part.axis == Axis::Positions; }
bool in_layers(const Part& part) { return part.first >= 0 && part.axis != Axis::None && !is_table(part); }

}  // namespace

Range flat_param_shard(int64_t bytes, int rank, int n) {
  const auto begin = [&](int r) { return r == n ? bytes : bytes * r / n / cut_at * cut_at; };
  return {begin(rank), begin(rank + 1)};
}

Range table_shard(int64_t rows, int rank, int n) { return {rows * rank / n, rows * (rank + 1) / n}; }

WeightShards shard_weights(const ModelMetadata& metadata, DType precision) {
  WeightShards out;
  std::set<Place> with_own;  // layers with partitioned parameters that no other layer reads
  for (const Part& part : metadata.parts) {
    for (int layer = part.first; in_layers(part) && part.also.empty() && layer < part.first + part.count; ++layer)
      with_own.insert({part.stack, layer});
  }
  std::map<Place, FlatParamInfo> flat_params;
  for (const Part& part : metadata.parts) {
    const int64_t bytes = held_bytes(metadata, part, part.units, precision);
    const bool beside = !part.also.empty() && with_own.contains({part.stack, part.first});
    if (is_table(part)) {
      const bool scored = part.stack.empty() || std::any_of(part.also.begin(), part.also.end(),
                                                            [](const Use& use) { return use.stack.empty(); });
      const int64_t row = held_bytes(metadata, part, 1, precision);
      out.tables.push_back({part.stack, part.units, row, scored && part.axis == Axis::Vocab});
      out.widest_row = std::max(out.widest_row, row);
    } else if (!in_layers(part) || beside) {
      out.whole += bytes * part.count;
    } else {
      int layers = 1;
      for (const Use& use : part.also) layers += use.first >= 0 ? use.count : 0;
      for (int layer = part.first; layer < part.first + part.count; ++layer) {
        FlatParamInfo& run =
            flat_params.try_emplace({part.stack, layer}, FlatParamInfo{part.stack, layer, 0, 1}).first->second;
        run.bytes += bytes;
        run.layers = std::max(run.layers, layers);
      }
    }
  }
  for (auto& [place, run] : flat_params) out.flat_params.push_back(std::move(run));
  for (const StackMetadata& stack : metadata.stacks) {
    out.widest_row = std::max(out.widest_row, float_bytes * std::max(stack.hidden, stack.ffn));
    for (const HeadLayout& layout : head_layouts(stack))
      out.widest_row = std::max(out.widest_row, float_bytes * layout.heads * layout.head_dim);
  }
  return out;
}

int64_t WeightShards::rank_bytes(int rank, int n) const {
  int64_t bytes = 0;
  for (const FlatParamInfo& run : flat_params) bytes += flat_param_shard(run.bytes, rank, n).size();
  for (const ShardedTable& table : tables) bytes += table_shard(table.rows, rank, n).size() * table.row_bytes;
  return bytes;
}

int64_t WeightShards::largest_flat_param() const {
  int64_t most = 0;
  for (const FlatParamInfo& run : flat_params) most = std::max(most, run.bytes);
  return most;
}

}  // namespace pm
