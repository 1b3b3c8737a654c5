// The table of `families`, read off the built-in policies.
#include <algorithm>

#include "worker/policy/document.h"
#include "worker/policy/model.h"

namespace pm::policy {

std::vector<Family> families() {
  std::vector<Family> all;
  for (const Builtin& builtin : builtins()) {
    const Node policy = parse_policy(std::string(builtin.text), "policies/" + std::string(builtin.name) + ".yaml");
    Family family;
    family.model_type = builtin.name;
    family.topology = policy.get("topology")->text;
    const Node* runs = policy.get("runs");
    family.runs = runs && runs->text == "true";
    for (const auto& [name, architecture] : policy.get("architectures")->entries) {
      family.architectures.push_back(name.text);
      const std::string& task = architecture.get("task")->text;
      if (std::find(family.tasks.begin(), family.tasks.end(), task) == family.tasks.end()) family.tasks.push_back(task);
    }
    all.push_back(std::move(family));
  }
  return all;
}

}  // namespace pm::policy
