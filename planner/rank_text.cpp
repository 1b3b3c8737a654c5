// SPDX-License-Identifier: Apache-2.0
#include "planner/rank_text.h"

#include <algorithm>

#include "planner/text_format.h"

namespace pm::text {

std::string layers_of(const RankPlan& rank) {
  std::string text;
  for (const auto& [stack, range] : rank.layers) {
    if (range.size() == 0) continue;
    text += (text.empty() ? "" : ", ") + stack +
            (range.size() == 1 ? " layer " + number(range.begin)
                               : " layers " + number(range.begin) + "-" + number(range.end - 1));
  }
  return text.empty() ? "no layers" : text;
}

std::string heads_of(const RankPlan& rank) {
  std::vector<std::string> parts;
  for (const Partition::Row& row : rank.rows) {
    if (row.axis != Axis::Heads || row.ranges[0].size() == 0) continue;
    const std::string text =
        "heads " + number(row.ranges[0].begin) + "-" + number(row.ranges[0].end - 1) + " of " + number(row.units);
    if (std::find(parts.begin(), parts.end(), text) == parts.end()) parts.push_back(text);
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text.empty() ? "no heads" : text;
}

}  // namespace pm::text
