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
      if (architecture.get("as")) continue;   // an old name of another class
      const Node *refusal = architecture.get("refuse"), *task = architecture.get("task"), *topology = architecture.get("topology");
      FamilyClass one{name.text, topology ? topology->text : family.topology, task ? task->text : "", ""};
      if (refusal && refusal->is_scalar()) one.refusal = refusal->text;
      family.classes.push_back(std::move(one));
    }
    all.push_back(std::move(family));
  }
  return all;
}

nlohmann::json families_json() {
  nlohmann::json all = nlohmann::json::array();
  for (const Family& family : families()) {
    nlohmann::json classes = nlohmann::json::array();
    for (const FamilyClass& one : family.classes) {
      nlohmann::json row{{"name", one.name}, {"topology", one.topology}};
      row[one.refusal.empty() ? "task" : "refused"] = one.refusal.empty() ? one.task : one.refusal;
      classes.push_back(std::move(row));
    }
    all.push_back({{"name", family.name}, {"model_types", family.model_types}, {"topology", family.topology}, {"classes", std::move(classes)}});
  }
  return all;
}

}  // namespace pm::policy
