// SPDX-License-Identifier: Apache-2.0
// Tests the table of reasons, and that docs/reference/conditions.md says what it says.
#include "contract/reasons.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "tests/unit/support/repository.h"

namespace pm {
namespace {

/// A row of a table of the page, by the header of its columns.
using Row = std::map<std::string, std::string>;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line.substr(1));
  for (std::string cell; std::getline(text, cell, '|');) {
    const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

/// Returns the rows of all tables of the page. Column "section" is the heading above the table.
std::vector<Row> rows_of_the_page() {
  std::ifstream page(test::repository() / "docs/reference/conditions.md");
  std::vector<Row> rows;
  std::vector<std::string> header;
  std::string section;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("|")) {
      header.clear();
    } else if (header.empty()) {
      header = cells_of(line);
    } else if (!line.starts_with("|---")) {
      Row row{{"section", section}};
      const std::vector<std::string> cells = cells_of(line);
      for (size_t i = 0; i < header.size() && i < cells.size(); ++i) row[header[i]] = cells[i];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// The header of the column with the reason, and of the one with its text, in the table of the page.
struct Columns {
  std::string section, reason, text;
};

Columns columns_of(ShownIn shown_in) {
  switch (shown_in) {
    case ShownIn::Plan:
      return {"Planned = True: why this layout", "reason", "the layout is"};
    case ShownIn::Rejected:
      return {"Planned = True: why this layout", "reason", "the rejected layout has"};
    case ShownIn::Planned:
      return {"Planned = False", "reason", "it means"};
    case ShownIn::Replica:
    case ShownIn::Model:
      return {"Scheduled, ModelLoaded, Ready = False", "reason", "it means"};
    case ShownIn::Holds:
      return {"Scheduled, ModelLoaded, Ready = False", "reason for True", "it means"};
    case ShownIn::Reconciling:
      return {"Reconciling and Stalled", "reason", "it means"};
    case ShownIn::Record:
      return {"Reconciling and Stalled", "reason of a replica", "it means"};
    case ShownIn::Worker:
      return {"Exit codes", "reason of the worker", "it means"};
  }
  return {};
}

std::string value(const Row& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() ? "" : found->second;
}

TEST(Reasons, AreReadByTheNameThatTheyAreWrittenWith) {
  std::set<std::string_view> names;
  for (const ReasonInfo& info : reason_table) {
    EXPECT_EQ(&info_of(info.reason), &info);
    EXPECT_EQ(parse_reason(name_of(info.reason)), info.reason);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_EQ(parse_reason("ModelUnreadble"), std::nullopt);
  EXPECT_EQ(parse_reason(""), std::nullopt);
}

TEST(Reasons, AreWordsInJsonAndInLogs) {
  EXPECT_EQ((nlohmann::json{{"reason", Reason::RankLost}}).dump(), R"({"reason":"RankLost"})");
  std::ostringstream log;
  log << Reason::RankHung;
  EXPECT_EQ(log.str(), "RankHung");
  EXPECT_TRUE(std::string("RankLost") == Reason::RankLost);
  EXPECT_TRUE(std::string("rank lost") != Reason::RankLost);
}

TEST(Reasons, EachStandsInItsTableOfThePageWithItsText) {
  const std::vector<Row> rows = rows_of_the_page();
  ASSERT_GT(rows.size(), 50u);
  for (const ReasonInfo& info : reason_table) {
    const Columns columns = columns_of(info.shown_in);
    std::string text = "not on the page";
    for (const Row& row : rows) {
      if (value(row, "section") == columns.section && value(row, columns.reason) == info.name &&
          row.contains(columns.text))
        text = value(row, columns.text);
    }
    EXPECT_EQ(text, info.text) << info.name << " in " << columns.section;
  }
}

TEST(Reasons, ThePageNamesNoOther) {
  for (const Row& row : rows_of_the_page()) {
    if (value(row, "section") == "Events") continue;
    for (const char* column : {"reason", "reason for True", "reason of a replica", "reason of the worker"}) {
      const std::string name = value(row, column);
      if (name.empty() || name.starts_with("a reason of")) continue;
      EXPECT_TRUE(parse_reason(name)) << name << " in " << value(row, "section");
    }
  }
}

TEST(Reasons, ExitCodesOfThePageAreThoseOfTheTable) {
  for (const Row& row : rows_of_the_page()) {
    if (const std::string name = value(row, "reason of the worker"); !name.empty()) {
      const ErrorKind kind = info_of(parse_reason(name).value()).kind;
      EXPECT_EQ(value(row, "exit code"), kind == ErrorKind::None ? "none" : std::to_string(exit_code(kind))) << name;
    }
    std::istringstream names(value(row, "reasons"));
    for (std::string name; names >> name;) {
      if (name.ends_with(',')) name.pop_back();
      if (const auto reason = parse_reason(name))
        EXPECT_EQ(value(row, "code"), std::to_string(exit_code(info_of(*reason).kind))) << name;
      else
        EXPECT_EQ(name, "...");
    }
  }
}

}  // namespace
}  // namespace pm
