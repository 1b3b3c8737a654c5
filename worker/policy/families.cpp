// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/families.h"

#include "worker/policy/document.h"

namespace pm::policy {

std::vector<Family> families() {
  std::vector<Family> all;
  for (const Builtin& builtin : builtins()) {
    const Node policy = parse_policy(std::string(builtin.text), "policies/" + std::string(builtin.name) + ".yaml");
    Family family{std::string(builtin.name), model_types(policy), *parse<ModelKind>(policy.get("kind")->text), {}};
    for (const auto& [name, architecture] : policy.get("architectures")->entries) {
      if (architecture.get("alias_of")) continue;  // an old name of another class
      const Node *refusal = architecture.get("refuse"), *task = architecture.get("task"),
                 *kind = architecture.get("kind");
      FamilyClass one{name.text, kind ? *parse<ModelKind>(kind->text) : family.kind, {}, ""};
      if (refusal && refusal->is_scalar())
        one.refusal = refusal->text;
      else if (task)
        one.task = parse<Task>(task->text);
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
      nlohmann::json row{{"name", one.name}, {"kind", to_string(one.kind)}};
      if (one.refusal.empty())
        row["task"] = to_string(*one.task);
      else
        row["refused"] = one.refusal;
      classes.push_back(std::move(row));
    }
    all.push_back({{"name", family.name},
                   {"model_types", family.model_types},
                   {"kind", to_string(family.kind)},
                   {"classes", std::move(classes)}});
  }
  return all;
}

}  // namespace pm::policy
