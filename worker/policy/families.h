// SPDX-License-Identifier: Apache-2.0
// Lists the built-in policies for the subcommand `families`.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/enums.h"

namespace pm::policy {

/// A class of transformers in a policy: its task, or the message with which it is refused.
struct FamilyClass {
  std::string name;
  ModelKind kind = ModelKind::Decoder;
  std::optional<Task> task;  ///< absent: refused
  std::string refusal;
};
/// One row of the subcommand `families`: a built-in policy.
struct Family {
  std::string name;
  std::vector<std::string> model_types;
  ModelKind kind = ModelKind::Decoder;
  std::vector<FamilyClass> classes;
};
std::vector<Family> families();
/// [{name, model_types, kind, classes: [{name, kind, task | refused}]}]
nlohmann::json families_json();

}  // namespace pm::policy
