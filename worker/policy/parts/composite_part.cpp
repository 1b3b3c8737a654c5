// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/parts/composite_part.h"

#include "worker/base/error.h"

namespace pm::policy {

using nlohmann::json;

CheckpointView view_of(const CheckpointView& whole, const std::string& section, const std::string& before) {
  static const json none;
  const auto found = whole.config.find(section);
  return {.checkpoint = whole.checkpoint,
          .config = found == whole.config.end() ? none : *found,
          .prefix = before + section + "."};
}

void open_part(Part& part, const Node& section) {
  const json& config = part.view.config;
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  if (!config.is_object() || type == config.end() || !type->is_string()) {
    throw Error(Reason::ModelUnreadable, "config.json has no section \"" + section.text +
                                             "\" with a \"model_type\", which " + section.where() + " needs");
  }
  part.type = type->get<std::string>();
  try {
    part.policy = builtin_policy(part.type);
  } catch (const Error& error) {
    throw Error(error.reason, "the section \"" + section.text + "\": " + error.what());
  }
  part.variables = {&config, {part.policy.get("let")}, std::nullopt};
  part.model.model_type = part.type;
}

std::string of_part(const Part& part, const std::string& key) {
  return "the " + key + " of config.json is of model_type \"" + part.type + "\"";
}

void rename_stack(Model& part, const std::string& stack, const std::string& name) {
  const std::string before = stack;  // which may be the name in `part` that changes here
  const auto rename = [&](std::string& path) {
    if (path.starts_with(before + ".")) path.replace(0, before.size(), name);
  };
  for (const PlacedParam& placed : placed_params(part)) {
    auto& param = const_cast<Param&>(*placed.param);  // of `part`, which is mutable
    rename(param.path);
    rename(param.shares);
    if (param.stack == before) param.stack = name;
  }
  for (Stack& one : part.stacks)
    if (one.name == before) one.name = name;
  for (Head& head : part.heads)
    if (head.stack == before) head.stack = name;
}

}  // namespace pm::policy
