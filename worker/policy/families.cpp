// The table of `families`, read off the built-in policies.
#include "worker/policy/document.h"
#include "worker/policy/model.h"

namespace pm::policy {

std::vector<Family> families() {
  std::vector<Family> all;
  for (const Builtin& builtin : builtins()) {
    const Node policy = parse_policy(std::string(builtin.text), "policies/" + std::string(builtin.name) + ".yaml");
    Family family{std::string(builtin.name), model_types(policy), policy.get("topology")->text, {}};
    for (const auto& [name, architecture] : policy.get("architectures")->entries) {
      const Node *refusal = architecture.get("refuse"), *task = architecture.get("task"), *topology = architecture.get("topology");
      FamilyClass one{name.text, topology ? topology->text : family.topology, task ? task->text : "", ""};
      if (refusal && refusal->is_scalar()) one.refusal = refusal->text;
      family.classes.push_back(std::move(one));
    }
    all.push_back(std::move(family));
  }
  return all;
}

}  // namespace pm::policy
