// The plan as text: the layout as a grid of lanes, stages and tensor ranks, what each rank holds with its bytes, and a picture of each device's memory.
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

/// Columns as wide as their widest entry, the first line is the heading; entries to the right, or to the left.
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

/// "encoder layers 4-6, decoder layers 0-2"
std::string layers_of(const RankPlan& rank) {
  std::string text;
  for (const auto& [stack, range] : rank.layers) {
    if (range.size() == 0) continue;
    text += (text.empty() ? "" : ", ") + stack + (range.size() == 1 ? " layer " + number(range.begin) : " layers " + number(range.begin) + "-" + number(range.end - 1));
  }
  return text.empty() ? "no layers" : text;
}

/// "heads 0-5", of each stack when they differ.
std::string heads_of(const RankPlan& rank) {
  std::vector<std::string> parts;
  for (const Cuts::Row& row : rank.rows) {
    if (row.axis != Axis::Heads || row.ranges[0].size() == 0) continue;
    const std::string text = "heads " + number(row.ranges[0].begin) + "-" + number(row.ranges[0].end - 1) + " of " + number(row.units);
    if (std::find(parts.begin(), parts.end(), text) == parts.end()) parts.push_back(text);
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text.empty() ? "no heads" : text;
}

/// Lanes, stages below each other, tensor ranks beside each other. Lanes are alike: those after the first only tell their ranks.
std::string grid(const Plan& plan) {
  const auto at = [&](int lane, int stage, int t) -> const RankPlan& {
    return plan.ranks[static_cast<size_t>((lane * plan.pipeline + stage) * plan.tensor + t)];
  };
  std::ostringstream out;
  for (int lane = 0; lane < plan.data; ++lane) {
    const int first = at(lane, 0, 0).rank, last = at(lane, plan.pipeline - 1, plan.tensor - 1).rank;
    if (lane > 0) {
      out << "lane " << lane << ": " << (first == last ? "rank " + number(first) : "ranks " + number(first) + "-" + number(last)) << ", as lane 0\n";
      continue;
    }
    out << "lane 0\n";
    std::vector<Line> lines;
    for (int stage = 0; stage < plan.pipeline; ++stage) {
      Line ranks{"stage " + number(stage)}, heads{layers_of(at(0, stage, 0))}, sizes{""};
      for (int t = 0; t < plan.tensor; ++t) {
        const RankPlan& rank = at(0, stage, t);
        ranks.push_back("| rank " + number(rank.rank));
        heads.push_back("| " + heads_of(rank));
        sizes.push_back("| " + bytes(rank.predicted.weights));
      }
      lines.insert(lines.end(), {ranks, heads, sizes});
    }
    out << table(lines, true, "  ");
  }
  return out.str();
}

std::string heading(const Cuts::Row& row) { return (row.stack.empty() ? "" : row.stack + " ") + std::string(name_of(row.axis)) + "/" + number(row.units); }

/// One column for each row of any rank; stages without it have '-'.
std::string cuts_table(const Plan& plan) {
  std::vector<Line> lines{{"rank"}};
  for (const RankPlan& rank : plan.ranks) {
    for (const Cuts::Row& row : rank.rows) {
      if (std::find(lines[0].begin(), lines[0].end(), heading(row)) == lines[0].end()) lines[0].push_back(heading(row));
    }
  }
  for (const RankPlan& rank : plan.ranks) {
    Line line(lines[0].size(), "-");
    line[0] = number(rank.rank);
    for (const Cuts::Row& row : rank.rows) {
      const auto column = std::find(lines[0].begin(), lines[0].end(), heading(row)) - lines[0].begin();
      line[static_cast<size_t>(column)] = shown(row.ranges.at(0));
    }
    lines.push_back(line);
  }
  return table(lines);
}

std::string sizes_text(const Plan& plan) {
  std::string text;
  for (const auto& [name, size] : {std::pair{"tensor", plan.tensor}, {"pipeline", plan.pipeline}, {"data", plan.data}}) text += (text.empty() ? "" : " x ") + std::string(name) + " " + number(size);
  return text;
}

std::string figure_text(const UsedFigure& used) {
  std::ostringstream out;
  out << used.name << " " << used.figure.value << " " << used.unit << " (" << used.figure.source << ")";
  return out.str();
}

}  // namespace

std::string describe(const Plan& plan) {
  std::ostringstream out;
  out << name_of(plan.strategy) << " over " << plan.ranks.size() << (plan.ranks.size() == 1 ? " rank" : " ranks") << " (" << sizes_text(plan) << "), " << name_of(plan.precision)
      << ": ";
  if (plan.kv_blocks > 0) {
    out << plan.concurrency << (plan.concurrency == 1 ? " sequence" : " sequences") << " of " << plan.sequence_length << " tokens, " << plan.kv_blocks
        << " KV blocks of 16 tokens" << (plan.data > 1 ? " a lane\n" : "\n");
  } else {
    out << "each input in one pass, up to " << plan.sequence_length << " tokens, no KV cache\n";
  }
  out << plan.reason << ": " << plan.message << "\n\n" << grid(plan);
  if (plan.gathering) {
    const bool device = plan.gathering->from == Residency::Device;
    out << (device ? "each rank keeps 1/" + number(plan.data) + " of every layer and table" : std::string(plan.gathering->from == Residency::File ? "layers and tables stay in the checkpoint's files" : "layers and tables stay in the host's memory"))
        << "; what a layer needs comes together in two buffers of " << bytes(plan.gathering->buffer) << "\n";
    if (plan.gathering->host > 0) out << "each rank pins at most " << bytes(plan.gathering->host) << " of the host's memory\n";
  }
  if (plan.pipeline > 1) out << plan.micro_batches << (plan.kv_blocks > 0 ? " groups of sequences in flight\n" : " micro-batches a pass\n");

  std::vector<Line> sizes{{"rank", "weights", "kv", "activations", "communicator", "runtime", "total", "of " + bytes(plan.device_memory)}};
  for (const RankPlan& rank : plan.ranks) {
    const Memory& m = rank.predicted;
    sizes.push_back({number(rank.rank), bytes(m.weights), bytes(m.kv), bytes(m.activations), bytes(m.communicator), bytes(m.runtime), bytes(m.total()),
                     bar(m, plan.device_memory)});
  }
  out << "\n" << cuts_table(plan) << "\n" << table(sizes) << "w weights  k KV cache  a activations  c communicator  r runtime  . free; memory of a device: "
      << plan.memory_source << "; /dev/shm: " << bytes(plan.shm_bytes) << "\n";
  if (!plan.figures.empty()) out << "\n";
  for (const UsedFigure& used : plan.figures) out << figure_text(used) << "\n";
  if (!plan.rejected.empty()) out << "\n";
  for (const Rejected& one : plan.rejected) out << "not " << one.strategy << " (" << one.reason << "): " << one.message << "\n";
  return out.str();
}

}  // namespace pm
