// SPDX-License-Identifier: Apache-2.0
// Loading of policies: built-in or from a file, `extends`, `like`, then validation.
#include "worker/policy/document.h"

#include <fstream>
#include <sstream>

#include "worker/base/error.h"

namespace pm::policy {

namespace {

Node complete(Node policy, int depth);

const Builtin* find_builtin(std::string_view name) {
  for (const Builtin& builtin : builtins())
    if (builtin.name == name) return &builtin;
  return nullptr;
}

std::string builtin_names() {
  std::string all;
  for (const Builtin& builtin : builtins()) all += (all.empty() ? "" : ", ") + std::string(builtin.name);
  return all;
}

/// Resolves `extends: t5`: returns the built-in policy overlaid by this one.
Node extended(Node policy, int depth) {
  const Node* base = policy.get("extends");
  if (!base) return policy;
  const Builtin* builtin = base->is_scalar() ? find_builtin(base->text) : nullptr;
  if (!builtin)
    refuse_policy(*base, "extends \"" + base->text + "\", which is no built-in policy; there are " + builtin_names());
  if (depth >= 8) refuse_policy(*base, "policies extend each other in a circle");
  const Node below =
      complete(parse_yaml(std::string(builtin->text), "policies/" + std::string(builtin->name) + ".yaml"), depth + 1);
  Node result = merged(below, policy);
  std::erase_if(result.entries, [](const auto& entry) { return entry.first.text == "extends"; });
  return result;
}

/// Resolves `like: encoder`: replaces the stack by that stack overlaid by this one.
void copy_likes(Node& policy) {
  const Node* stacks = policy.get("stacks");
  if (!stacks || !stacks->is_map()) return;
  Node filled = *stacks;
  for (size_t i = 0; i < filled.entries.size(); ++i) {
    Node& stack = filled.entries[i].second;
    const Node* like = stack.get("like");
    if (!like) continue;
    const Node* origin = nullptr;
    for (size_t j = 0; j < i; ++j)
      if (filled.entries[j].first.text == like->text) origin = &filled.entries[j].second;
    if (!origin) refuse_policy(*like, "like: \"" + like->text + "\" is not a stack that stands above this one");
    Node whole = merged(*origin, stack);
    std::erase_if(whole.entries, [](const auto& entry) { return entry.first.text == "like"; });
    stack = std::move(whole);
  }
  for (auto& [key, value] : policy.entries)
    if (key.text == "stacks") value = std::move(filled);
}

Node complete(Node policy, int depth) {
  policy = extended(std::move(policy), depth);
  copy_likes(policy);
  return policy;
}

}  // namespace

Node parse_policy(const std::string& text, const std::string& file) {
  Node policy = complete(parse_yaml(text, file), 0);
  validate(policy);
  return policy;
}

std::vector<std::string> model_types(const Node& policy) { return texts_of(policy.get("model_type")); }

Node builtin_policy(const std::string& model_type) {
  std::string all;
  for (const Builtin& builtin : builtins()) {
    const std::string file = "policies/" + std::string(builtin.name) + ".yaml";
    const Node raw = parse_yaml(std::string(builtin.text), file);
    for (const std::string& type : model_types(raw)) {
      if (type == model_type) return parse_policy(std::string(builtin.text), file);
      all += (all.empty() ? "" : ", ") + type;
    }
  }
  throw Error(Reason::UnknownArchitecture, "config.json says model_type \"" + model_type +
                                               "\", for which there is no policy; there are " + all +
                                               ". A policy of your own can be given (--policy, spec.model.policyRef)");
}

Node load_policy(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream) throw Error(Reason::UnsupportedPolicy, "the policy file " + file.string() + " cannot be read");
  return parse_policy(text.str(), file.string());
}

}  // namespace pm::policy
