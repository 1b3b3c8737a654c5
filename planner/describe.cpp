// SPDX-License-Identifier: Apache-2.0
// Formats a plan as text: a grid of data-parallel ranks, stages and tensor-parallel ranks, the weights and bytes of
// each rank, and a bar of each device's memory.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/byte_size.h"
#include "contract/kv_block.h"
#include "planner/plan.h"
#include "planner/rank_text.h"
#include "planner/text_format.h"

namespace pm {

using namespace text;

namespace {

using Line = std::vector<std::string>;
constexpr int bar_width = 48;

std::string shown(const Range& range) {
  return number(range.begin) + ".." + number(range.end) + " (" + number(range.size()) + ")";
}

/// Formats lines as columns; the first line is the heading. Entries are aligned to the right, or to the left.
std::string table(const std::vector<Line>& lines, bool left = false, const std::string& indent = "") {
  std::vector<size_t> widths;
  for (const Line& line : lines) {
    widths.resize(std::max(widths.size(), line.size()), 0);
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::ostringstream out;
  for (const Line& line : lines) {
    std::string text = indent;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      text += (i ? "  " : "") + (left ? line[i] + space : space + line[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << "\n";
  }
  return out.str();
}

/// Draws the memory of a device as a bar: w weights, k KV cache, a activations, c communicator, r runtime, '.' free.
/// Every term that is not 0 takes at least one character.
std::string bar(const Memory& memory, int64_t device_memory) {
  const std::pair<int64_t, char> terms[] = {{memory.weights, 'w'},
                                            {memory.kv, 'k'},
                                            {memory.activations, 'a'},
                                            {memory.communicator, 'c'},
                                            {memory.runtime, 'r'}};
  std::string text;
  for (const auto& [size, letter] : terms) {
    if (size > 0)
      text.append(std::max<size_t>(1, static_cast<size_t>(static_cast<double>(size) /
                                                          static_cast<double>(device_memory) * bar_width)),
                  letter);
  }
  text.resize(static_cast<size_t>(bar_width), '.');
  return "[" + text + "]";
}

/// Draws data-parallel ranks with a line of tensor-parallel ranks per stage. Data-parallel ranks are alike: those after
/// the first only list their ranks.
std::string grid(const Plan& plan) {
  const auto at = [&](int dp_rank, int stage, int t) -> const RankPlan& {
    return plan.ranks[static_cast<size_t>((dp_rank * plan.pipeline + stage) * plan.tensor + t)];
  };
  std::ostringstream out;
  for (int dp_rank = 0; dp_rank < plan.data; ++dp_rank) {
    const int first = at(dp_rank, 0, 0).rank, last = at(dp_rank, plan.pipeline - 1, plan.tensor - 1).rank;
    if (dp_rank > 0) {
      out << "dp_rank " << dp_rank << ": "
          << (first == last ? "rank " + number(first) : "ranks " + number(first) + "-" + number(last))
          << ", as dp_rank 0\n";
      continue;
    }
    out << "dp_rank 0\n";
    std::vector<Line> lines;
    for (int stage = 0; stage < plan.pipeline; ++stage) {
      Line ranks{"stage " + number(stage)}, heads{layers_of(at(0, stage, 0))}, sizes{""};
      for (int t = 0; t < plan.tensor; ++t) {
        const RankPlan& rank = at(0, stage, t);
        ranks.push_back("| rank " + number(rank.rank));
        heads.push_back("| " + heads_of(rank));
        sizes.push_back("| " + base::format_bytes(rank.predicted.weights));
      }
      lines.insert(lines.end(), {ranks, heads, sizes});
    }
    out << table(lines, true, "  ");
  }
  return out.str();
}

std::string heading(const Partition::Row& row) {
  return (row.stack.empty() ? "" : row.stack + " ") + std::string(name_of(row.axis)) + "/" + number(row.units) +
         (row.layout == 0 ? "" : " #" + number(row.layout));
}

/// Formats the shards with one column for each partitioned row; ranks without it have '-'.
std::string partition_table(const Plan& plan) {
  std::vector<Line> lines{{"rank"}};
  for (const RankPlan& rank : plan.ranks) {
    for (const Partition::Row& row : rank.rows) {
      if (std::find(lines[0].begin(), lines[0].end(), heading(row)) == lines[0].end()) lines[0].push_back(heading(row));
    }
  }
  for (const RankPlan& rank : plan.ranks) {
    Line line(lines[0].size(), "-");
    line[0] = number(rank.rank);
    for (const Partition::Row& row : rank.rows) {
      const auto column = std::find(lines[0].begin(), lines[0].end(), heading(row)) - lines[0].begin();
      line[static_cast<size_t>(column)] = shown(row.ranges.at(0));
    }
    lines.push_back(line);
  }
  return table(lines);
}

std::string sizes_text(const Plan& plan) {
  std::string text;
  for (const auto& [name, size] : {std::pair{"tensor", plan.tensor}, {"pipeline", plan.pipeline}, {"data", plan.data}})
    text += (text.empty() ? "" : " x ") + std::string(name) + " " + number(size);
  return text;
}

std::string value_text(const UsedHardwareValue& used) {
  std::ostringstream out;
  out << used.name << " " << used.value.value << " " << used.unit << " (" << used.value.source << ")";
  return out.str();
}

}  // namespace

std::string describe(const Plan& plan) {
  std::ostringstream out;
  out << name_of(plan.strategy) << " over " << plan.ranks.size() << (plan.ranks.size() == 1 ? " rank" : " ranks")
      << " (" << sizes_text(plan) << "), " << name_of(plan.precision) << ": ";
  if (plan.kv_blocks > 0) {
    out << plan.concurrency << (plan.concurrency == 1 ? " sequence" : " sequences") << " of " << plan.sequence_length
        << " tokens, " << plan.kv_blocks << " KV blocks of " << block_tokens << " tokens"
        << (plan.kv_precision ? " in " + std::string(name_of(*plan.kv_precision)) : "")
        << (plan.data > 1 ? " a dp_rank" : "")
        << (plan.step_tokens != step_tokens ? ", prompts in chunks of " + number(plan.step_tokens) + " tokens" : "")
        << "\n";
  } else {
    out << "each input in one pass, up to " << plan.sequence_length << " tokens, no KV cache\n";
  }
  out << plan.reason << ": " << plan.message << "\n\n" << grid(plan);
  if (plan.gathering) {
    const bool device = plan.gathering->from == Residency::Device;
    out << (device ? "each rank keeps 1/" + number(plan.data) + " of every layer and table"
                   : std::string(plan.gathering->from == Residency::File
                                     ? "layers and tables stay in the checkpoint's files"
                                     : "layers and tables stay in the host's memory"))
        << "; what a layer needs comes together in two buffers of " << base::format_bytes(plan.gathering->buffer)
        << "\n";
    if (plan.gathering->host > 0)
      out << "each rank pins at most " << base::format_bytes(plan.gathering->host) << " of the host's memory\n";
  }
  if (plan.pipeline > 1)
    out << plan.micro_batches << (plan.kv_blocks > 0 ? " groups of sequences in flight\n" : " micro-batches a pass\n");

  std::vector<Line> sizes{{"rank", "weights", "kv", "activations", "communicator", "runtime", "total",
                           "of " + base::format_bytes(plan.device_memory)}};
  for (const RankPlan& rank : plan.ranks) {
    const Memory& m = rank.predicted;
    sizes.push_back({number(rank.rank), base::format_bytes(m.weights), base::format_bytes(m.kv),
                     base::format_bytes(m.activations), base::format_bytes(m.communicator),
                     base::format_bytes(m.runtime), base::format_bytes(m.total()), bar(m, plan.device_memory)});
  }
  out << "\n"
      << partition_table(plan) << "\n"
      << table(sizes) << "w weights  k KV cache  a activations  c communicator  r runtime  . free; memory of a device: "
      << plan.memory_source << "; /dev/shm: " << base::format_bytes(plan.shm_bytes) << "\n";
  if (plan.adapter_bytes > 0)
    out << "each rank keeps at most " << base::format_bytes(plan.adapter_bytes) << " for adapters beside this memory\n";
  if (plan.draft)
    out << "rank 0 keeps at most " << base::format_bytes(plan.draft->bytes) << " for what drafts beside this memory\n";
  if (!plan.hardware_values.empty()) out << "\n";
  for (const UsedHardwareValue& used : plan.hardware_values) out << value_text(used) << "\n";
  if (!plan.rejected.empty()) out << "\n";
  for (const Rejected& one : plan.rejected)
    out << "not " << one.strategy << " (" << one.reason << "): " << one.message << "\n";
  return out.str();
}

}  // namespace pm
