// SPDX-License-Identifier: Apache-2.0
// Checks the architectures of a policy.
#include <algorithm>

#include "worker/policy/document.h"

namespace pm::policy {

namespace {

/// Returns the entries of a list, the node itself where it is none, and nothing where it is absent.
std::vector<const Node*> items_of(const Node* node) {
  std::vector<const Node*> items;
  if (node && !node->is_list()) items.push_back(node);
  if (node && node->is_list())
    for (const Node& item : node->items) items.push_back(&item);
  return items;
}

}  // namespace

void check_architectures(const Node& policy, const std::function<void(const char*, const Node&)>& known) {
  for (const auto& [name, architecture] : policy.get("architectures")->entries) {
    if (!architecture.is_map()) refuse_policy(name, "the architecture " + name.text + " has no task");
    if (const Node* other = architecture.get("alias_of")) {
      known("architectures", *other);
      if (architecture.entries.size() > 1 || policy.get("architectures")->get(other->text)->get("alias_of")) {
        refuse_policy(*other, "\"alias_of\" stands alone and names a class that is described");
      }
      continue;
    }
    const Node* heads = architecture.get("heads");
    for (const char* section : {"heads", "stacks"}) {
      for (const Node* item : items_of(architecture.get(section))) known(section, *item);
    }
    const Node* refusal = architecture.get("refuse");
    if (!architecture.get("task") && !(refusal && refusal->is_scalar()))
      refuse_policy(name, "the architecture " + name.text + " has no task");
    const Node* outputs = architecture.get("outputs");
    for (const auto& [head, output] : outputs ? outputs->entries : decltype(outputs->entries){}) {
      const std::vector<const Node*> all = items_of(heads);
      const bool listed =
          std::any_of(all.begin(), all.end(), [&wanted = head.text](const Node* item) { return item->text == wanted; });
      if (!listed) refuse_policy(head, "outputs: \"" + head.text + "\" is not one of the heads of " + name.text);
    }
  }
}

}  // namespace pm::policy
