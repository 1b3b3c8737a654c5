// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/server/support/exposition.h"

#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace pm::test {

std::map<std::string, double> parse_exposition(const std::string& text) {
  static const std::regex comment(R"(# (HELP|TYPE) ([a-zA-Z_:][\w:]*) (.+))");
  static const std::regex sample(R"re(([a-zA-Z_:][\w:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*\})? ([^ ]+))re");
  std::map<std::string, double> samples;
  std::set<std::string> types;
  std::string family;
  double bucket = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_match(line, match, comment)) {
      if (match[1] == "TYPE" && !types.insert(match[2]).second) throw std::runtime_error("family twice: " + line);
      family = match[2];
      bucket = 0;
    } else if (std::regex_match(line, match, sample)) {
      const std::string name = match[1];
      if (!name.starts_with(family) || !types.contains(family))
        throw std::runtime_error("sample outside its family: " + line);
      const double value = std::stod(match[3]);
      if (name.ends_with("_bucket")) {
        if (value < bucket) throw std::runtime_error("bucket shrinks: " + line);
        bucket = value;
      }
      if (!samples.emplace(name + match[2].str(), value).second) throw std::runtime_error("sample twice: " + line);
    } else {
      throw std::runtime_error("no exposition: " + line);
    }
  }
  return samples;
}

}  // namespace pm::test
