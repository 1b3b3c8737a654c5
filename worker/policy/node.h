// SPDX-License-Identifier: Apache-2.0
// A policy file as a tree whose every node knows its file and line, so that each error can point at them.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pm::policy {

/// A YAML node without anchors, tags or types: scalars stay text until a slot says what they are.
struct Node {
  // out of line: a pair of Nodes needs a whole Node, which it is only behind its last brace
  Node();
  ~Node();
  Node(const Node&);
  Node(Node&&) noexcept;
  Node& operator=(const Node&);
  Node& operator=(Node&&) noexcept;

  enum class Kind : uint8_t { Null, Scalar, List, Map };
  Kind kind = Kind::Null;
  std::string text;                            ///< Scalar
  std::vector<Node> items;                     ///< List
  std::vector<std::pair<Node, Node>> entries;  ///< Map, in the order of the file
  std::shared_ptr<const std::string> file;
  int line = 0;  ///< from 1

  bool is_scalar() const { return kind == Kind::Scalar; }
  bool is_list() const { return kind == Kind::List; }
  bool is_map() const { return kind == Kind::Map; }
  /// The value of `key`; nullptr when this is no map or has no such key, or it is null.
  const Node* get(std::string_view key) const;
  /// "policies/gpt2.yaml:12"
  std::string where() const;
};

/// The texts of a scalar or of a list of them; none without a node.
std::vector<std::string> texts_of(const Node* node);

/// Parses one YAML document. `file` is its name in errors. Throws Error{UnsupportedPolicy} with file and line;
/// refuses a key twice in one map, more than 256 KiB, 20,000 nodes or 32 levels (anchors could otherwise blow it up).
Node parse_yaml(const std::string& text, const std::string& file);

/// `over` laid on `base`: maps merge key by key, everything else replaces; null in `over` removes.
Node merged(const Node& base, const Node& over);

/// Throws Error{UnsupportedPolicy} "file:line: message".
[[noreturn]] void refuse_policy(const Node& at, const std::string& message);

}  // namespace pm::policy
