// SPDX-License-Identifier: Apache-2.0
// The tables of generation parameters in docs/reference are those of the code. PM_DOCS_WRITE=1 writes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/support/repository.h"
#include "worker/engine/sampling/parameters.h"

namespace pm::engine {
namespace {

std::string code(const std::string& text) { return "`" + text + "`"; }

std::string default_text(const Parameter& parameter) {
  if (parameter.default_text) return parameter.default_text;
  struct ToText {
    std::string operator()(EarlyStopping value) const { return value == EarlyStopping::Yes ? "true" : "false"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(double value) const { return base::number_text(value); }
    std::string operator()(const std::optional<int64_t>& value) const {
      return value ? std::to_string(*value) : "none";
    }
    std::string operator()(const std::optional<double>& value) const {
      return value ? base::number_text(*value) : "none";
    }
    std::string operator()(int32_t value) const { return std::to_string(value); }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(uint64_t value) const { return std::to_string(value); }
  };
  const GenerationConfig config;
  return std::visit([&](auto member) { return ToText()(member_of(config, member)); }, parameter.member);
}

std::string row(const std::string& name, const std::string& allowed, const Parameter& parameter) {
  return "| " + code(name) + " | " + allowed + " | " + default_text(parameter) + " | " + parameter.description + " |\n";
}

/// The table of the fields of a request; `common`: those of every route, otherwise those that /generate has beside.
std::string fields_table(bool common) {
  std::string table = "| field | allowed | default | meaning |\n|---|---|---|---|\n";
  for (const Parameter& parameter : generation_parameters())
    if ((parameter.group == ParameterGroup::Common) == common)
      table += row(parameter.name, parameter.allowed(Dialect::HuggingFace), parameter);
  return table;
}

std::string flags_table() {
  std::string table = "| flag | allowed | default | meaning |\n|---|---|---|---|\n";
  for (const Parameter& parameter : generation_parameters()) {
    std::string flag = std::string("--") + parameter.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const bool boolean = parameter.type() == ParameterType::Boolean;
    table += row(flag, boolean ? "no value" : parameter.allowed(Dialect::HuggingFace), parameter);
  }
  return table;
}

/// Compares the text between the two marks of `block` in a page with `table`.
void expect_table(const std::string& page, const std::string& block, const std::string& table) {
  const std::filesystem::path path = test::repository() / "docs/reference" / page;
  std::ifstream in(path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string begin = "<!-- " + block + ": made by parameter_pages_test.cpp -->\n\n", end = "\n<!-- end -->\n";
  const size_t from = text.find(begin), to = text.find(end, from);
  ASSERT_NE(from, std::string::npos) << page << " has no line " << begin;
  ASSERT_NE(to, std::string::npos) << page << " has no line " << end;
  const size_t start = from + begin.size();
  if (std::getenv("PM_DOCS_WRITE")) {
    std::ofstream(path) << text.substr(0, start) << table << text.substr(to);
    return;
  }
  EXPECT_EQ(text.substr(start, to - start), table) << "run this test with PM_DOCS_WRITE=1, which writes " << page;
}

TEST(ParameterPages, SayWhatTheTableSays) {
  expect_table("http.md", "common", fields_table(true));
  expect_table("http.md", "generate", fields_table(false));
  expect_table("flags.md", "generate", flags_table());
}

}  // namespace
}  // namespace pm::engine
