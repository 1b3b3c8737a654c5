// The plan as text: a table of ranks with what each holds and its bytes, and a picture of each device's memory.
#include <algorithm>
#include <sstream>
#include <nlohmann/json.hpp>

#include "planner/plan.h"
#include "planner/words.h"

namespace pm {

namespace {

using Line = std::vector<std::string>;
constexpr int bar_width = 48;

std::string shown(const Range& range) { return number(range.begin) + ".." + number(range.end) + " (" + number(range.size()) + ")"; }

/// Columns as wide as their widest entry, the first line is the heading.
std::string table(const std::vector<Line>& lines) {
  std::vector<size_t> widths;
  for (const Line& line : lines) {
    widths.resize(std::max(widths.size(), line.size()), 0);
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::ostringstream out;
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) out << (i ? "  " : "") << std::string(widths[i] - line[i].size(), ' ') << line[i];
    out << "\n";
  }
  return out.str();
}

/// The device as a bar: w weights, k KV cache, a activations, c communicator, r runtime, '.' free. A term that is there shows at least once.
std::string bar(const Memory& memory, int64_t device_memory) {
  const std::pair<int64_t, char> terms[] = {{memory.weights, 'w'}, {memory.kv, 'k'}, {memory.activations, 'a'}, {memory.communicator, 'c'}, {memory.runtime, 'r'}};
  std::string text;
  for (const auto& [size, letter] : terms) {
    if (size > 0) text.append(std::max<size_t>(1, static_cast<size_t>(static_cast<double>(size) / static_cast<double>(device_memory) * bar_width)), letter);
  }
  text.resize(static_cast<size_t>(bar_width), '.');
  return "[" + text + "]";
}

}  // namespace

std::string describe(const Plan& plan) {
  std::ostringstream out;
  out << name_of(plan.strategy) << " over " << plan.ranks.size() << (plan.ranks.size() == 1 ? " rank" : " ranks") << ", " << name_of(plan.precision)
      << ": ";
  if (plan.kv_blocks > 0) {
    out << plan.concurrency << (plan.concurrency == 1 ? " sequence" : " sequences") << " of " << plan.sequence_length << " tokens, " << plan.kv_blocks
        << " KV blocks of 16 tokens\n";
  } else {
    out << "each input in one pass, up to " << plan.sequence_length << " tokens, no KV cache\n";
  }
  out << plan.reason << ": " << plan.message << "\n\n";

  std::vector<Line> cuts{{"rank"}}, sizes{{"rank", "weights", "kv", "activations", "communicator", "runtime", "total", "of " + bytes(plan.device_memory)}};
  if (!plan.ranks.empty()) {
    for (const Cuts::Row& row : plan.ranks[0].rows) {
      cuts[0].push_back((row.stack.empty() ? "" : row.stack + " ") + std::string(name_of(row.axis)) + "/" + number(row.units));
    }
  }
  for (const RankPlan& rank : plan.ranks) {
    Line line{number(rank.rank)};
    for (const Cuts::Row& row : rank.rows) line.push_back(shown(row.ranges.at(0)));
    cuts.push_back(line);
    const Memory& m = rank.predicted;
    sizes.push_back({number(rank.rank), bytes(m.weights), bytes(m.kv), bytes(m.activations), bytes(m.communicator), bytes(m.runtime), bytes(m.total()),
                     bar(m, plan.device_memory)});
  }
  out << table(cuts) << "\n" << table(sizes) << "w weights  k KV cache  a activations  c communicator  r runtime  . free; memory of a device: "
      << plan.memory_source << "; /dev/shm: " << bytes(plan.shm_bytes) << "\n";
  if (!plan.rejected.empty()) out << "\n";
  for (const Rejected& one : plan.rejected) out << "not " << one.strategy << " (" << one.reason << "): " << one.message << "\n";
  return out.str();
}

}  // namespace pm
