// SPDX-License-Identifier: Apache-2.0
#include "worker/server/replies/tool_choice.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Returns the name of {"type": "function", "function": {"name"}}; nothing for another tool.
std::optional<std::string> function_name(const ordered_json& tool) {
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return std::nullopt;
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

bool has_tool(const ordered_json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const auto& tool) { return function_name(tool) == name; });
}

/// Returns whether the schema of some tool has to be held whenever it is called.
bool has_strict(const ordered_json& tools) {
  return std::ranges::any_of(tools, [](const ordered_json& tool) {
    const auto function = tool.find("function");
    return function != tool.end() && function->is_object() && function->value("strict", ordered_json()) == true;
  });
}

void read_tools(Fields& fields, const ordered_json& ordered, ToolChoice& choice) {
  const json* tools = fields.find("tools");
  if (!tools) return;
  const bool objects =
      tools->is_array() && std::all_of(tools->begin(), tools->end(), [](const json& tool) { return tool.is_object(); });
  if (!objects || tools->size() > max_tools)
    throw bad_field("tools", json_excerpt(*tools), "an array of at most " + std::to_string(max_tools) + " objects");
  for (size_t i = 0; i < tools->size(); ++i) {
    const json type = (*tools)[i].value("type", json("function"));
    if (type != "function")
      throw bad_field("tools[" + std::to_string(i) + "].type", json_excerpt(type),
                      "\"function\"; this server has no tools of its own");
  }
  choice.tools = ordered.at("tools");
  choice.calls = !tools->empty();
}

/// Returns the name that {"type": "function", "function": {"name"}} chooses among the tools.
std::string chosen_name(const json& chosen, const ordered_json& tools, const std::string& field) {
  const auto name = chosen.is_object() ? function_name(ordered_json(chosen)) : std::nullopt;
  if (!name) throw bad_field(field, json_excerpt(chosen), R"({"type": "function", "function": {"name": ...}})");
  if (!has_tool(tools, *name)) throw bad_field(field, json_excerpt(*name), "the name of one of tools");
  return *name;
}

void demand_all(ToolChoice& choice) {
  for (const ordered_json& tool : choice.tools) {
    const auto name = function_name(tool);
    if (!name)
      throw bad_field("tools", json_excerpt(json(tool)),
                      R"(tools {"type": "function", "function": {"name": ...}}, as tool_choice demands a call)");
    choice.demanded.push_back(*name);
  }
  if (choice.demanded.empty())
    throw ApiError(400, "invalid_value", "tool_choice demands a call, and tools is missing or empty", "tool_choice");
}

/// Reads {"mode": "auto" | "required", "tools": [...]}: the other tools are left out of the prompt.
void read_allowed(const json& allowed, ToolChoice& choice) {
  const std::string field = "tool_choice.allowed_tools";
  if (!allowed.is_object()) throw bad_field(field, json_excerpt(allowed), "an object with mode and tools");
  Fields fields(allowed, field);
  const auto mode = fields.text("mode");
  if (!mode || (*mode != "auto" && *mode != "required"))
    throw bad_field(field + ".mode", mode ? json_excerpt(*mode) : "missing", R"("auto" or "required")");
  const json* tools = fields.find("tools");
  if (!tools || !tools->is_array() || tools->empty())
    throw bad_field(field + ".tools", tools ? json_excerpt(*tools) : "missing", "an array of at least one tool");
  fields.refuse_others();
  std::vector<std::string> names;
  for (const json& tool : *tools) names.push_back(chosen_name(tool, choice.tools, field + ".tools"));
  ordered_json allowed_tools = ordered_json::array();
  for (const ordered_json& tool : choice.tools)
    if (const auto name = function_name(tool); name && std::find(names.begin(), names.end(), *name) != names.end())
      allowed_tools.push_back(tool);
  choice.tools = std::move(allowed_tools);
  if (*mode == "required") demand_all(choice);
}

void read_choice(const json& value, ToolChoice& choice) {
  if (value == "auto") return;
  if (value == "none") {
    choice.tools.clear();
    choice.calls = false;
  } else if (value == "required") {
    demand_all(choice);
  } else if (value.is_object() && value.value("type", json()) == "allowed_tools") {
    read_allowed(value.value("allowed_tools", json()), choice);
  } else if (value.is_object()) {
    choice.demanded = {chosen_name(value, choice.tools, "tool_choice")};
    choice.parallel = false;
  } else {
    throw bad_field("tool_choice", json_excerpt(value),
                    R"("auto", "none", "required", {"type": "function", ...} or {"type": "allowed_tools", ...})");
  }
}

}  // namespace

ToolChoice read_tool_choice(Fields& fields, const ordered_json& ordered) {
  ToolChoice choice;
  read_tools(fields, ordered, choice);
  choice.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (const json* value = fields.find("tool_choice")) read_choice(*value, choice);
  for (const char* name : {"functions", "function_call"}) fields.only(name, nullptr);
  return choice;
}

std::optional<ConstraintSpec> reply_constraint(const ServerContext& context, const ToolChoice& choice,
                                               const std::optional<ConstraintSpec>& spec, const std::string& prompt,
                                               bool is_reasoning) {
  const bool demands = !choice.demanded.empty();
  const bool may_call = !demands && !spec && choice.calls && has_strict(choice.tools);
  if (!demands && ((!spec && !may_call) || !context.replies)) return spec;
  const std::string field = demands ? "tool_choice" : may_call ? "tools" : spec->field;
  if (!context.replies)
    throw ApiError(400, "invalid_constraint",
                   "tool_choice cannot be held: neither the model's folder (response_template of "
                   "tokenizer_config.json) nor the policy of its family (replies) says how it writes calls",
                   field);
  ordered_json request = {{"prompt", prompt}, {"reasoning", is_reasoning}, {"parallel", choice.parallel}};
  if (demands) {
    request["tools"] = ordered_json::array();
    for (const ordered_json& tool : choice.tools)
      if (std::find(choice.demanded.begin(), choice.demanded.end(), *function_name(tool)) != choice.demanded.end())
        request["tools"].push_back(tool);
  } else if (may_call) {
    request["text_too"] = true;
    for (const ordered_json& tool : choice.tools)
      if (function_name(tool)) request["tools"].push_back(tool);
  } else {
    request["kind"] = static_cast<uint32_t>(spec->kind);
    request["text"] = spec->text;
    if (choice.calls) request["tools"] = choice.tools;
  }
  try {
    return ConstraintSpec{ConstraintKind::Reply, context.replies->grammar(*context.tokenizer, request.dump()), field};
  } catch (const Error& error) {
    throw ApiError(400, "invalid_constraint",
                   (may_call ? "strict of " : "") + field + " cannot be held: " + error.what() +
                       (may_call ? "; leave out strict to have calls as the model writes them" : ""),
                   field);
  }
}

}  // namespace pm::server
