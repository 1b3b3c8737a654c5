// SPDX-License-Identifier: Apache-2.0
// Parses and evaluates equality-based and existence label selectors.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "controller/core/json.h"

namespace pm::k8s {

struct LabelTerm {
  enum class Op { Equals, NotEquals, Exists, NotExists };
  std::string name;
  Op op = Op::Exists;
  std::string value;
};

/// "a=b,c!=d,e,!f". Throws std::invalid_argument for anything else (set-based terms included), naming the term.
std::vector<LabelTerm> parse_selector(const std::string&);
bool matches(const std::vector<LabelTerm>&, const Json& object);
/// "a=b,c=d", ordered by name.
std::string format_selector(const std::map<std::string, std::string>&);

}  // namespace pm::k8s
