// See cuts.h. Heads are dealt first because they are the coarsest; FFN columns next; vocabulary rows, the finest, last, so that each
// step repays the unevenness of the steps before. Integer arithmetic only: planner, loader and tests must agree on every machine.
#include "planner/cuts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

namespace pm {

namespace {

using Wide = __int128;

std::string text(int64_t number) { return std::to_string(number); }

/// `units` in n contiguous ranges whose sizes differ by at most one; the first ranks get the larger ones.
std::vector<Range> even(int64_t units, int n) {
  std::vector<Range> ranges;
  for (int64_t rank = 0, begin = 0; rank < n; ++rank) {
    const int64_t end = begin + units / n + (rank < units % n ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

struct HeadCut { std::vector<Range> heads, kv; };

/// Whole kv groups while there are at least n; else each kv head goes to several ranks, which split its heads.
HeadCut deal_heads(int64_t heads, int64_t kv_heads, int n) {
  const int64_t group = heads / kv_heads;
  HeadCut cut;
  if (kv_heads >= n) {
    cut.kv = even(kv_heads, n);
    for (const Range& range : cut.kv) cut.heads.push_back({range.begin * group, range.end * group});
    return cut;
  }
  const std::vector<Range> ranks_of_kv = even(n, static_cast<int>(kv_heads));
  for (int64_t kv = 0; kv < kv_heads; ++kv) {
    for (const Range& range : even(group, static_cast<int>(ranks_of_kv[static_cast<size_t>(kv)].size()))) {
      cut.kv.push_back({kv, kv + 1});
      cut.heads.push_back({kv * group + range.begin, kv * group + range.end});
    }
  }
  return cut;
}

/// Rows of the kv heads `kv` of each rank: neighbours with the same heads share these rows out evenly.
std::vector<Range> deal_kv_rows(const std::vector<Range>& kv, int64_t head_dim) {
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

/// Fills the ranks from the lowest up, as water would, until `amount` is used: the addition for each rank.
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

/// `units` in contiguous ranges proportional to `shares`, cut at multiples of `block`, at least one block each while there are enough.
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
      // nearest multiple of block to units * sum / total; equal shares when nothing is to be repaid
      const Wide numerator = total > 0 ? static_cast<Wide>(units) * sum : static_cast<Wide>(units) * (rank + 1);
      const Wide denominator = (total > 0 ? total : static_cast<Wide>(n)) * block;
      end = static_cast<int64_t>((2 * numerator + denominator) / (2 * denominator)) * block;
      end = std::clamp(end, std::min(units, begin + least), std::max(begin + least, units - (n - 1 - rank) * least));
      end = std::min(end, units);
    }
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

/// 32 columns, so that int8 groups stay whole; a smaller power of two when that would leave fewer than four blocks for each rank, and there are no groups.
int64_t ffn_block(int64_t columns, int n, DType precision) {
  int64_t block = int8_group;
  while (precision != DType::I8 && block > 1 && columns / block < 4 * static_cast<int64_t>(n)) block /= 2;
  return block;
}

using Key = std::tuple<std::string, Axis, int64_t>;
Key key_of(const std::string& stack, Axis axis, int64_t units) { return {axis == Axis::Vocab ? std::string() : stack, axis, units}; }

/// What a unit weighs when bytes are levelled.
int64_t bytes_per_unit(const Facts& facts, const Part& part, DType planned) { return held_bytes(facts, part, int8_group, planned) / int8_group * part.count; }

/// Deals row after row and keeps account of what each rank holds.
class Dealer {
 public:
  Dealer(const Facts& facts, int n, DType dtype) : facts_(facts), n_(n), dtype_(dtype), held_(static_cast<size_t>(n), 0) {
    for (const Part& part : facts.parts) weight_[key_of(part.stack, part.axis, part.units)] += bytes_per_unit(facts, part, dtype);
  }

  std::vector<Cuts::Row> deal() {
    for (const StackFacts& stack : facts_.stacks) deal_stack(stack);
    for (const Part& part : facts_.parts) deal_other_heads(part);
    std::vector<Key> columns, vocabularies;
    for (const Part& part : facts_.parts) {
      const Key key = key_of(part.stack, part.axis, part.units);
      std::vector<Key>* list = part.axis == Axis::Ffn ? &columns : part.axis == Axis::Vocab ? &vocabularies : nullptr;
      if (list && std::find(list->begin(), list->end(), key) == list->end()) list->push_back(key);
    }
    columns.insert(columns.end(), vocabularies.begin(), vocabularies.end());
    for (size_t i = 0; i < columns.size(); ++i) deal_repaying(columns, i);
    return std::move(rows_);
  }

 private:
  bool done(const Key& key) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Cuts::Row& row) { return key_of(row.stack, row.axis, row.units) == key; });
  }

  void add(const Key& key, std::vector<Range> ranges) {
    if (done(key)) return;
    const auto weight = weight_.find(key);
    for (size_t rank = 0; rank < held_.size(); ++rank) held_[rank] += weight == weight_.end() ? 0 : ranges[rank].size() * weight->second;
    rows_.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), std::move(ranges)});
  }

  void deal_stack(const StackFacts& stack) {
    if (stack.heads <= 0) return;
    if (stack.kv_heads <= 0 || stack.heads % stack.kv_heads != 0) {
      throw std::invalid_argument("stack \"" + stack.name + "\" has " + text(stack.heads) + " heads and " + text(stack.kv_heads) +
                                  " kv heads; expected a multiple");
    }
    if (stack.heads < n_) {
      throw std::invalid_argument("stack \"" + stack.name + "\" has " + text(stack.heads) + " heads, too few for " + text(n_) + " ranks; use at most " +
                                  text(stack.heads) + " ranks");
    }
    add_heads(stack, stack.heads, stack.kv_heads);
  }

  void add_heads(const StackFacts& stack, int64_t heads, int64_t kv_heads) {
    HeadCut cut = deal_heads(heads, kv_heads, n_);
    add({stack.name, Axis::Heads, heads}, std::move(cut.heads));
    add({stack.name, Axis::Kv, kv_heads}, cut.kv);
    if (stack.head_dim > 0) add({stack.name, Axis::KvRows, kv_heads * stack.head_dim}, deal_kv_rows(cut.kv, stack.head_dim));
  }

  /// Layers whose head count differs from the stack's, with the stack's group and head size; rows of position tables; groups of convolutions.
  void deal_other_heads(const Part& part) {
    const Key key = key_of(part.stack, part.axis, part.units);
    if (part.axis == Axis::Groups || part.axis == Axis::Positions) add(key, even(part.units, n_));
    if ((part.axis != Axis::Heads && part.axis != Axis::Kv && part.axis != Axis::KvRows) || done(key)) return;
    const auto stack = std::find_if(facts_.stacks.begin(), facts_.stacks.end(), [&](const StackFacts& s) { return s.name == part.stack; });
    if (stack == facts_.stacks.end() || stack->heads <= 0) throw std::invalid_argument("facts have no stack \"" + part.stack + "\" with heads");
    if (part.axis == Axis::KvRows && (stack->head_dim <= 0 || part.units % stack->head_dim != 0)) {
      throw std::invalid_argument("stack \"" + part.stack + "\" has key and value projections of " + text(part.units) +
                                  " rows; expected a multiple of its head size " + text(stack->head_dim));
    }
    const int64_t group = stack->heads / stack->kv_heads;
    const int64_t heads = part.axis == Axis::Heads ? part.units : part.axis == Axis::Kv ? part.units * group : part.units / stack->head_dim * group;
    if (heads % group != 0 || heads < n_) {
      throw std::invalid_argument("stack \"" + part.stack + "\" has layers of " + text(heads) + " heads; expected a multiple of " + text(group) +
                                  ", at least " + text(n_));
    }
    add_heads(*stack, heads, heads / group);
  }

  /// Row i of `keys` takes its part, by bytes, of what all rows from i on have to repay.
  void deal_repaying(const std::vector<Key>& keys, size_t i) {
    int64_t left = 0;
    for (size_t j = i; j < keys.size(); ++j) left += weight_.at(keys[j]) * std::get<2>(keys[j]);
    const int64_t units = std::get<2>(keys[i]);
    const int64_t block = std::get<1>(keys[i]) == Axis::Ffn ? ffn_block(units, n_, dtype_) : 1;
    add(keys[i], proportional(units, block, level(held_, left)));
  }

  const Facts& facts_;
  const int n_;
  const DType dtype_;
  std::vector<int64_t> held_;              ///< bytes of what is cut, per rank; what all hold whole does not matter here
  std::map<Key, int64_t> weight_;          ///< bytes of one unit, over all layers
  std::vector<Cuts::Row> rows_;
};

}  // namespace

Range Cuts::range(const std::string& stack, Axis axis, int64_t units, int rank) const {
  if (rank < 0 || rank >= ranks_) throw std::out_of_range("rank " + text(rank) + " of a cut over " + text(ranks_) + " ranks");
  if (axis == Axis::None) return {0, units};
  const Key key = key_of(stack, axis, units);
  for (const Row& row : rows_) {
    if (key_of(row.stack, row.axis, row.units) == key) return row.ranges[static_cast<size_t>(rank)];
  }
  throw std::out_of_range("no cut for " + text(units) + " " + std::string(name_of(axis)) + " of stack \"" + stack + "\"; the facts do not have them");
}

int64_t Cuts::weight_bytes(const Facts& facts, int rank, std::vector<int64_t>* per_part) const {
  int64_t total = 0;
  if (per_part) per_part->clear();
  for (const Part& part : facts.parts) {
    const int64_t bytes = held_bytes(facts, part, range(part.stack, part.axis, part.units, rank).size(), dtype_) * part.count;
    if (per_part) per_part->push_back(bytes);
    total += bytes;
  }
  return total;
}

Cuts deal(const Facts& facts, int n, DType dtype) {
  if (n < 1) throw std::invalid_argument("cannot cut over " + text(n) + " ranks; at least 1 is needed");
  Cuts cuts;
  cuts.ranks_ = n;
  cuts.dtype_ = dtype;
  cuts.compute_ = compute_type(facts, dtype);
  cuts.rows_ = Dealer(facts, n, dtype).deal();
  return cuts;
}

}  // namespace pm
