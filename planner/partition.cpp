// SPDX-License-Identifier: Apache-2.0
// Partitions heads first because they are the coarsest units, then FFN columns, and rows of vocabularies and indices
// last, so that each step balances the unevenness of the steps before. Arithmetic is in integers only: planner, loader
// and tests must agree on every machine.
#include "planner/partition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

namespace pm {

namespace {

using Wide = __int128;

std::string text(int64_t number) { return std::to_string(number); }

/// Splits `units` into n contiguous ranges whose sizes differ by at most one; the first ranks get the larger ones.
std::vector<Range> even(int64_t units, int n) {
  std::vector<Range> ranges;
  for (int64_t rank = 0, begin = 0; rank < n; ++rank) {
    const int64_t end = begin + units / n + (rank < units % n ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

struct HeadRanges {
  std::vector<Range> heads, kv;
};

/// Assigns whole kv groups while there are at least n. Otherwise each kv head goes to several ranks, which split its
/// heads.
HeadRanges partition_heads(int64_t heads, int64_t kv_heads, int n) {
  const int64_t group = heads / kv_heads;
  HeadRanges ranges;
  if (kv_heads >= n) {
    ranges.kv = even(kv_heads, n);
    for (const Range& range : ranges.kv) ranges.heads.push_back({range.begin * group, range.end * group});
    return ranges;
  }
  const std::vector<Range> ranks_of_kv = even(n, static_cast<int>(kv_heads));
  for (int64_t kv = 0; kv < kv_heads; ++kv) {
    for (const Range& range : even(group, static_cast<int>(ranks_of_kv[static_cast<size_t>(kv)].size()))) {
      ranges.kv.push_back({kv, kv + 1});
      ranges.heads.push_back({kv * group + range.begin, kv * group + range.end});
    }
  }
  return ranges;
}

/// Returns the rows of the kv heads `kv` of each rank: neighbours with the same heads split these rows evenly.
std::vector<Range> partition_kv_rows(const std::vector<Range>& kv, int64_t head_dim) {
  std::vector<Range> rows;
  while (rows.size() < kv.size()) {
    const Range heads = kv[rows.size()];
    size_t end = rows.size() + 1;
    while (end < kv.size() && kv[end] == heads) ++end;
    for (const Range& part : even(heads.size() * head_dim, static_cast<int>(end - rows.size()))) {
      rows.push_back({heads.begin * head_dim + part.begin, heads.begin * head_dim + part.end});
    }
  }
  return rows;
}

/// Fills the emptiest ranks to a common level until `amount` is used, and returns the addition for each rank.
std::vector<int64_t> level(const std::vector<int64_t>& held, int64_t amount) {
  std::vector<size_t> order(held.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return held[a] < held[b]; });
  Wide below = 0;
  int64_t surface = 0;
  size_t filled = 0;
  for (; filled < order.size(); ++filled) {
    if (filled > 0 && held[order[filled]] >= surface) break;
    below += held[order[filled]];
    surface = static_cast<int64_t>((below + amount) / static_cast<Wide>(filled + 1));
  }
  std::vector<int64_t> added(held.size(), 0);
  for (size_t i = 0; i < filled; ++i) added[order[i]] = std::max<int64_t>(0, surface - held[order[i]]);
  return added;
}

/// Splits `units` into contiguous ranges proportional to `shares`, at multiples of `block`, with at least one block
/// each while there are enough.
std::vector<Range> proportional(int64_t units, int64_t block, const std::vector<int64_t>& shares) {
  const auto n = static_cast<int64_t>(shares.size());
  const int64_t least = units >= n * block ? block : 0;
  Wide total = 0, sum = 0;
  for (const int64_t share : shares) total += share;
  std::vector<Range> ranges;
  int64_t begin = 0;
  for (int64_t rank = 0; rank < n; ++rank) {
    sum += shares[static_cast<size_t>(rank)];
    int64_t end = units;
    if (rank + 1 < n) {
      // nearest multiple of block to units * sum / total; equal shares when there is nothing to balance
      const Wide numerator = total > 0 ? static_cast<Wide>(units) * sum : static_cast<Wide>(units) * (rank + 1);
      const Wide denominator = (total > 0 ? total : static_cast<Wide>(n)) * block;
      end = static_cast<int64_t>((2 * numerator + denominator) / (2 * denominator)) * block;
      const int64_t most = (units - (n - 1 - rank) * least) / block * block;  // the last rank has what is no block
      end = std::clamp(end, std::min(units, begin + least), std::max(begin + least, most));
      end = std::min(end, units);
    }
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

/// Returns 32 columns, so that groups of codes stay whole, or a smaller power of two when there are no groups and 32
/// would leave fewer than four blocks for each rank.
int64_t ffn_block(int64_t columns, int n, DType precision) {
  int64_t block = code_group;
  while (!is_quantized(precision) && block > 1 && columns / block < 4 * static_cast<int64_t>(n)) block /= 2;
  return block;
}

using Key = std::tuple<std::string, Axis, int64_t, int>;
Key key_of(const std::string& stack, Axis axis, int64_t units, int layout = 0) {
  const bool by_heads = axis == Axis::Heads || axis == Axis::Kv || axis == Axis::KvRows;
  return {axis == Axis::Vocab ? std::string() : stack, axis, units, by_heads ? layout : 0};
}
Key key_of(const Part& part) { return key_of(part.stack, part.axis, part.units, part.layout); }

/// Returns the bytes of one unit of the part, over all its layers.
int64_t bytes_per_unit(const ModelMetadata& metadata, const Part& part, DType planned) {
  return held_bytes(metadata, part, code_group, planned) / code_group * part.count;
}

/// Partitions row after row and counts the bytes that each rank holds.
class Partitioner {
 public:
  Partitioner(const ModelMetadata& metadata, int n, DType dtype)
      : metadata_(metadata), n_(n), dtype_(dtype), held_(static_cast<size_t>(n), 0) {
    for (const Part& part : metadata.parts) weight_[key_of(part)] += bytes_per_unit(metadata, part, dtype);
  }

  std::vector<Partition::Row> run() {
    for (const StackMetadata& stack : metadata_.stacks) partition_stack(stack);
    for (const Part& part : metadata_.parts) partition_other_heads(part);
    std::vector<Key> columns, vocabularies;
    for (const Part& part : metadata_.parts) {
      const Key key = key_of(part);
      std::vector<Key>* list = part.axis == Axis::Ffn                                    ? &columns
                               : part.axis == Axis::Vocab || part.axis == Axis::Passages ? &vocabularies
                                                                                         : nullptr;
      if (list && std::find(list->begin(), list->end(), key) == list->end()) list->push_back(key);
    }
    columns.insert(columns.end(), vocabularies.begin(), vocabularies.end());
    for (size_t i = 0; i < columns.size(); ++i) partition_balanced(columns, i);
    return std::move(rows_);
  }

 private:
  bool done(const Key& key) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Partition::Row& row) {
      return key_of(row.stack, row.axis, row.units, row.layout) == key;
    });
  }

  void add(const Key& key, std::vector<Range> ranges) {
    if (done(key)) return;
    const auto weight = weight_.find(key);
    for (size_t rank = 0; rank < held_.size(); ++rank)
      held_[rank] += weight == weight_.end() ? 0 : ranges[rank].size() * weight->second;
    rows_.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), std::move(ranges), std::get<3>(key)});
  }

  void partition_stack(const StackMetadata& stack) {
    int number = 0;
    for (const HeadLayout& layout : head_layouts(stack)) {
      if (layout.kv_heads <= 0 || layout.heads % layout.kv_heads != 0) {
        throw std::invalid_argument("stack \"" + stack.name + "\" has " + text(layout.heads) + " heads and " +
                                    text(layout.kv_heads) + " kv heads; expected a multiple");
      }
      if (layout.heads < n_) {
        throw std::invalid_argument("stack \"" + stack.name + "\" has " + text(layout.heads) + " heads, too few for " +
                                    text(n_) + " ranks; use at most " + text(layout.heads) + " ranks");
      }
      add_heads(stack.name, layout, number++);
    }
  }

  void add_heads(const std::string& stack, const HeadLayout& layout, int number) {
    HeadRanges ranges = partition_heads(layout.heads, layout.kv_heads, n_);
    add({stack, Axis::Heads, layout.heads, number}, std::move(ranges.heads));
    add({stack, Axis::Kv, layout.kv_heads, number}, ranges.kv);
    if (layout.head_dim > 0)
      add({stack, Axis::KvRows, layout.kv_heads * layout.head_dim, number},
          partition_kv_rows(ranges.kv, layout.head_dim));
  }

  /// Partitions layers whose head count differs from the layout's, by its group and head size, rows of position
  /// tables, and groups of convolutions.
  void partition_other_heads(const Part& part) {
    const Key key = key_of(part);
    if (part.axis == Axis::Groups || part.axis == Axis::Positions) add(key, even(part.units, n_));
    if ((part.axis != Axis::Heads && part.axis != Axis::Kv && part.axis != Axis::KvRows) || done(key)) return;
    const auto stack = std::find_if(metadata_.stacks.begin(), metadata_.stacks.end(),
                                    [&](const StackMetadata& s) { return s.name == part.stack; });
    if (stack == metadata_.stacks.end() || stack->heads <= 0)
      throw std::invalid_argument("the model metadata has no stack \"" + part.stack + "\" with heads");
    const std::vector<HeadLayout> layouts = head_layouts(*stack);
    if (part.layout < 0 || part.layout >= static_cast<int>(layouts.size()))
      throw std::invalid_argument("stack \"" + part.stack + "\" has no layout " + text(part.layout) + " of heads");
    HeadLayout layout = layouts[static_cast<size_t>(part.layout)];
    if (part.axis == Axis::KvRows && (layout.head_dim <= 0 || part.units % layout.head_dim != 0)) {
      throw std::invalid_argument("stack \"" + part.stack + "\" has key and value projections of " + text(part.units) +
                                  " rows; expected a multiple of its head size " + text(layout.head_dim));
    }
    const int64_t group = layout.heads / layout.kv_heads;
    const int64_t heads = part.axis == Axis::Heads ? part.units
                          : part.axis == Axis::Kv  ? part.units * group
                                                   : part.units / layout.head_dim * group;
    // a block of a few heads, keys and values of which are cut by heads too: some ranks have none
    if (part.axis == Axis::Heads && group == 1 && heads < n_) return add(key, even(heads, n_));
    if (heads % group != 0 || heads < n_) {
      throw std::invalid_argument("stack \"" + part.stack + "\" has layers of " + text(heads) +
                                  " heads; expected a multiple of " + text(group) + ", at least " + text(n_));
    }
    layout.heads = heads;
    layout.kv_heads = heads / group;
    add_heads(part.stack, layout, part.layout);
  }

  /// Row i of `keys` takes its part, by bytes, of the imbalance that all rows from i on have to level.
  void partition_balanced(const std::vector<Key>& keys, size_t i) {
    int64_t left = 0;
    for (size_t j = i; j < keys.size(); ++j) left += weight_.at(keys[j]) * std::get<2>(keys[j]);
    const int64_t units = std::get<2>(keys[i]);
    const int64_t block = std::get<1>(keys[i]) == Axis::Ffn ? ffn_block(units, n_, dtype_) : 1;
    add(keys[i], proportional(units, block, level(held_, left)));
  }

  const ModelMetadata& metadata_;
  const int n_;
  const DType dtype_;
  std::vector<int64_t> held_;      ///< partitioned bytes per rank; replicated weights do not matter here
  std::map<Key, int64_t> weight_;  ///< bytes of one unit, over all layers
  std::vector<Partition::Row> rows_;
};

}  // namespace

Range Partition::range(const std::string& stack, Axis axis, int64_t units, int rank, int layout) const {
  if (rank < 0 || rank >= ranks_)
    throw std::out_of_range("rank " + text(rank) + " of a partition over " + text(ranks_) + " ranks");
  if (axis == Axis::None || axis == Axis::Latent) return {0, units};
  const Key key = key_of(stack, axis, units, layout);
  for (const Row& row : rows_) {
    if (key_of(row.stack, row.axis, row.units, row.layout) == key) return row.ranges[static_cast<size_t>(rank)];
  }
  throw std::out_of_range("no partition of " + text(units) + " " + std::string(name_of(axis)) + " of stack \"" + stack +
                          "\"; the model metadata does not name them");
}

int64_t Partition::weight_bytes(const ModelMetadata& metadata, int rank, std::vector<int64_t>* per_part) const {
  int64_t total = 0;
  if (per_part) per_part->clear();
  for (const Part& part : metadata.parts) {
    const int64_t bytes =
        held_bytes(metadata, part, range(part.stack, part.axis, part.units, rank, part.layout).size(), dtype_) *
        part.count;
    if (per_part) per_part->push_back(bytes);
    total += bytes;
  }
  return total;
}

Partition make_partition(const ModelMetadata& metadata, int n, DType dtype) {
  if (n < 1) throw std::invalid_argument("cannot partition over " + text(n) + " ranks; at least 1 is needed");
  Partition partition;
  partition.ranks_ = n;
  partition.dtype_ = dtype;
  partition.compute_ = compute_type(metadata, dtype);
  partition.rows_ = Partitioner(metadata, n, dtype).run();
  return partition;
}

}  // namespace pm
