// See spread.h.
#include "planner/spread.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "planner/memory.h"

namespace pm {

namespace {

constexpr int64_t cut_at = 64;   ///< bytes: parts begin where a cache line does, and elements of no type are cut

using Place = std::pair<std::string, int>;

bool is_table(const Part& part) { return part.axis == Axis::Vocab || part.axis == Axis::Positions; }
bool in_layers(const Part& part) { return part.first >= 0 && part.axis != Axis::None && !is_table(part); }

}  // namespace

Range part_of_run(int64_t bytes, int rank, int n) {
  const auto begin = [&](int r) { return r == n ? bytes : bytes * r / n / cut_at * cut_at; };
  return {begin(rank), begin(rank + 1)};
}

Range part_of_table(int64_t rows, int rank, int n) { return {rows * rank / n, rows * (rank + 1) / n}; }

Spread spread(const Facts& facts, DType precision) {
  Spread out;
  std::set<Place> with_own;   // layers that have cut parameters which no other layer reads
  for (const Part& part : facts.parts) {
    for (int layer = part.first; in_layers(part) && part.also.empty() && layer < part.first + part.count; ++layer) with_own.insert({part.stack, layer});
  }
  std::map<Place, Run> runs;
  for (const Part& part : facts.parts) {
    const int64_t bytes = held_bytes(facts, part, part.units, precision);
    const bool beside = !part.also.empty() && with_own.contains({part.stack, part.first});
    if (is_table(part)) {
      const bool scored = part.stack.empty() || std::any_of(part.also.begin(), part.also.end(), [](const Use& use) { return use.stack.empty(); });
      const int64_t row = held_bytes(facts, part, 1, precision);
      out.tables.push_back({part.stack, part.units, row, scored && part.axis == Axis::Vocab});
      out.widest_row = std::max(out.widest_row, row);
    } else if (!in_layers(part) || beside) {
      out.whole += bytes * part.count;
    } else {
      int layers = 1;
      for (const Use& use : part.also) layers += use.first >= 0 ? use.count : 0;
      for (int layer = part.first; layer < part.first + part.count; ++layer) {
        Run& run = runs.try_emplace({part.stack, layer}, Run{part.stack, layer, 0, 1}).first->second;
        run.bytes += bytes;
        run.layers = std::max(run.layers, layers);
      }
    }
  }
  for (auto& [place, run] : runs) out.runs.push_back(std::move(run));
  for (const StackFacts& stack : facts.stacks) out.widest_row = std::max(out.widest_row, float_bytes * std::max({stack.hidden, stack.ffn, stack.heads * stack.head_dim}));
  return out;
}

int64_t Spread::kept(int rank, int n) const {
  int64_t bytes = 0;
  for (const Run& run : runs) bytes += part_of_run(run.bytes, rank, n).size();
  for (const SpreadTable& table : tables) bytes += part_of_table(table.rows, rank, n).size() * table.row_bytes;
  return bytes;
}

int64_t Spread::largest_run() const {
  int64_t most = 0;
  for (const Run& run : runs) most = std::max(most, run.bytes);
  return most;
}

}  // namespace pm
