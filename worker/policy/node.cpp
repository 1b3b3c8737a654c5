// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/node.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "worker/base/error.h"

namespace pm::policy {

namespace {

constexpr size_t largest_file = 256 * 1024;
constexpr int deepest = 32, most_nodes = 20000;

struct Converter {
  std::shared_ptr<const std::string> file;
  int nodes = 0;

  Node convert(const YAML::Node& yaml, int depth) {
    Node node;
    node.file = file;
    node.line = yaml.Mark().line + 1;
    if (depth > deepest) refuse_policy(node, "nested deeper than 32 levels");
    if (++nodes > most_nodes) refuse_policy(node, "more than 20000 nodes, counting what anchors repeat");
    switch (yaml.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        break;
      case YAML::NodeType::Scalar:
        node.kind = Node::Kind::Scalar;
        node.text = yaml.Scalar();
        break;
      case YAML::NodeType::Sequence:
        node.kind = Node::Kind::List;
        for (const YAML::Node& item : yaml) node.items.push_back(convert(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        convert_map(yaml, node, depth);
        break;
    }
    return node;
  }

  void convert_map(const YAML::Node& yaml, Node& node, int depth) {
    node.kind = Node::Kind::Map;
    std::set<std::string> keys;
    for (const auto& entry : yaml) {
      Node key = convert(entry.first, depth + 1);
      if (!key.is_scalar()) refuse_policy(key, "a key has to be a word");
      if (!keys.insert(key.text).second) refuse_policy(key, "the key \"" + key.text + "\" stands twice in one map");
      node.entries.emplace_back(std::move(key), convert(entry.second, depth + 1));
    }
  }
};

}  // namespace

const Node* Node::get(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name.text == key) return value.kind == Kind::Null ? nullptr : &value;
  return nullptr;
}

std::vector<std::string> texts_of(const Node* node) {
  std::vector<std::string> all;
  if (node && node->is_scalar()) all.push_back(node->text);
  if (node)
    for (const Node& item : node->items) all.push_back(item.text);
  return all;
}

std::string Node::where() const { return (file ? *file : "policy") + ":" + std::to_string(line); }

void refuse_policy(const Node& at, const std::string& message) {
  throw Error(Reason::UnsupportedPolicy, at.where() + ": " + message);
}

Node parse_yaml(const std::string& text, const std::string& file) {
  Converter converter{std::make_shared<const std::string>(file)};
  Node start;
  start.file = converter.file;
  start.line = 1;
  if (text.size() > largest_file)
    refuse_policy(start, "a policy has at most 256 KiB, this one has " + std::to_string(text.size()) + " bytes");
  try {
    Node root = converter.convert(YAML::Load(text), 0);
    if (!root.is_map()) refuse_policy(start, "a policy is a map with model_type, stacks, architectures");
    return root;
  } catch (const YAML::Exception& problem) {
    start.line = problem.mark.line + 1;
    refuse_policy(start, "not YAML: " + problem.msg);
  }
}

Node::Node() = default;
Node::~Node() = default;
Node::Node(const Node&) = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(const Node&) = default;
Node& Node::operator=(Node&&) noexcept = default;

Node merged(const Node& base, const Node& over) {
  if (!base.is_map() || !over.is_map()) return over;
  Node result = base;
  result.line = over.line;
  result.file = over.file;
  for (const auto& [key, value] : over.entries) {
    auto found = std::find_if(result.entries.begin(), result.entries.end(),
                              [&text = key.text](const auto& entry) { return entry.first.text == text; });
    if (found == result.entries.end())
      result.entries.emplace_back(key, value);
    else if (value.kind == Node::Kind::Null)
      result.entries.erase(found);
    else
      found->second = merged(found->second, value);
  }
  return result;
}

}  // namespace pm::policy
