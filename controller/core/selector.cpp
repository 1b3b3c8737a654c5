// SPDX-License-Identifier: Apache-2.0
#include "controller/core/selector.h"

#include <algorithm>
#include <stdexcept>

#include "controller/core/object.h"

namespace pm::k8s {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

LabelTerm parse_term(const std::string& text) {
  const std::string term = trimmed(text);
  if (term.empty() || term.find_first_of(" ()<>") != std::string::npos) {
    throw std::invalid_argument("\"" + text + "\" is no label term: expected name, !name, name=value or name!=value");
  }
  if (term[0] == '!') return {term.substr(1), LabelTerm::Op::NotExists, ""};
  const size_t equals = term.find('=');
  if (equals == std::string::npos) return {term, LabelTerm::Op::Exists, ""};
  if (equals > 0 && term[equals - 1] == '!')
    return {term.substr(0, equals - 1), LabelTerm::Op::NotEquals, term.substr(equals + 1)};
  const size_t value = term.compare(equals, 2, "==") == 0 ? equals + 2 : equals + 1;
  return {term.substr(0, equals), LabelTerm::Op::Equals, term.substr(value)};
}

const Json& labels_of(const Json& object) {
  static const Json none = Json::object();
  if (!object.is_object() || !object.contains("metadata") || !object["metadata"].is_object()) return none;
  const auto found = object["metadata"].find("labels");
  return found != object["metadata"].end() && found->is_object() ? *found : none;
}

}  // namespace

std::vector<LabelTerm> parse_selector(const std::string& selector) {
  std::vector<LabelTerm> terms;
  if (selector.empty()) return terms;
  for (size_t begin = 0; begin <= selector.size();) {
    const size_t end = std::min(selector.find(',', begin), selector.size());
    terms.push_back(parse_term(selector.substr(begin, end - begin)));
    begin = end + 1;
  }
  return terms;
}

bool matches(const std::vector<LabelTerm>& terms, const Json& object) {
  const Json& labels = labels_of(object);
  for (const LabelTerm& term : terms) {
    const auto found = labels.find(term.name);
    const bool there = found != labels.end();
    const bool equal = there && *found == term.value;
    switch (term.op) {
      case LabelTerm::Op::Equals:
        if (!equal) return false;
        break;
      case LabelTerm::Op::NotEquals:
        if (equal) return false;
        break;
      case LabelTerm::Op::Exists:
        if (!there) return false;
        break;
      case LabelTerm::Op::NotExists:
        if (there) return false;
        break;
    }
  }
  return true;
}

std::string format_selector(const std::map<std::string, std::string>& labels) {
  std::string out;
  for (const auto& [name, value] : labels) out += (out.empty() ? "" : ",") + name + "=" + value;
  return out;
}

}  // namespace pm::k8s
