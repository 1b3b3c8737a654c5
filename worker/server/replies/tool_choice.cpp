// SPDX-License-Identifier: Apache-2.0
#include "worker/server/replies/tool_choice.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Returns the name of {"type": "function", "function": {"name"}}, or of one of another `type`; nothing for another
/// tool.
std::optional<std::string> tool_name(const ordered_json& tool, const char* type = "function") {
  const auto described = tool.find(type);
  if (described == tool.end() || !described->is_object()) return std::nullopt;
  const auto name = described->find("name");
  if (name == described->end() || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

bool has_tool(const ordered_json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const auto& tool) { return tool_name(tool) == name; });
}

/// Returns whether the schema of some tool has to be held whenever it is called.
bool has_strict(const ordered_json& tools) {
  return std::ranges::any_of(tools, [](const ordered_json& tool) {
    const auto function = tool.find("function");
    return function != tool.end() && function->is_object() && function->value("strict", ordered_json()) == true;
  });
}

void read_tools(Fields& fields, const ordered_json& ordered, ToolChoice& choice, UnknownFields& unknown) {
  const json* tools = fields.find("tools");
  if (!tools) return;
  const bool objects =
      tools->is_array() && std::all_of(tools->begin(), tools->end(), [](const json& tool) { return tool.is_object(); });
  if (!objects || tools->size() > max_tools)
    throw bad_field("tools", json_excerpt(*tools), "an array of at most " + std::to_string(max_tools) + " objects");
  choice.tools = ordered.at("tools");
  choice.calls = !tools->empty();
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string field = "tools[" + std::to_string(i) + "]";
    const json type = (*tools)[i].value("type", json("function"));
    if (type == "custom")
      choice.tools[i] = read_custom_tool((*tools)[i], field, choice.custom, unknown);
    else if (type != "function")
      throw bad_field(field + ".type", json_excerpt(type),
                      R"("function" or "custom"; this server has no tools of its own)");
  }
  for (const auto& custom : choice.custom)
    if (std::ranges::count(choice.tools, custom.first, [](const auto& tool) { return tool_name(tool); }) > 1)
      throw bad_field("tools", json_excerpt(custom.first) + " several times", "a name of its own for each custom tool");
}

/// Returns the name that {"type": "function", "function": {"name"}}, or a custom tool in place of the function, chooses
/// among the tools.
std::string chosen_name(const json& chosen, const ToolChoice& choice, const std::string& field) {
  const bool is_custom = chosen.is_object() && chosen.value("type", json()) == "custom";
  const auto name =
      chosen.is_object() ? tool_name(ordered_json(chosen), is_custom ? "custom" : "function") : std::nullopt;
  if (!name)
    throw bad_field(
        field, json_excerpt(chosen),
        R"({"type": "function", "function": {"name": ...}} or {"type": "custom", "custom": {"name": ...}})");
  if (!has_tool(choice.tools, *name) || choice.custom.contains(*name) != is_custom)
    throw bad_field(field, json_excerpt(*name), "the name of one of tools, with its type");
  return *name;
}

void demand_all(ToolChoice& choice) {
  for (const ordered_json& tool : choice.tools) {
    const auto name = tool_name(tool);
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
  for (const json& tool : *tools) names.push_back(chosen_name(tool, choice, field + ".tools"));
  ordered_json allowed_tools = ordered_json::array();
  for (const ordered_json& tool : choice.tools)
    if (const auto name = tool_name(tool); name && std::find(names.begin(), names.end(), *name) != names.end())
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
    choice.demanded = {chosen_name(value, choice, "tool_choice")};
    choice.parallel = false;
  } else {
    throw bad_field("tool_choice", json_excerpt(value),
                    R"("auto", "none", "required", {"type": "function" or "custom", ...} or {"type": "allowed_tools", )"
                    "...}");
  }
}

/// Returns a tool as the grammar of a reply gets it. A call of a custom tool always has its one parameter; the grammar
/// of the input is held where the call is `demanded`.
ordered_json constrained_tool(const ToolChoice& choice, const ordered_json& tool, bool demanded) {
  const auto name = tool_name(tool);
  const auto custom = name ? choice.custom.find(*name) : choice.custom.end();
  ordered_json made = tool;
  if (custom == choice.custom.end()) return made;
  made["function"]["strict"] = true;
  if (!demanded || custom->second.syntax.empty()) return made;
  if (custom->second.syntax != "regex")
    throw ApiError(400, "invalid_constraint",
                   "tool_choice cannot be held: the tool " + *name +
                       ": a Lark grammar is not held inside a call; use the syntax regex or the format text, or leave "
                       "the call to the model with tool_choice \"auto\"",
                   "tool_choice");
  const auto pattern = whole_pattern(custom->second.definition);
  if (!pattern)
    throw ApiError(400, "invalid_constraint",
                   "tool_choice cannot be held: the tool " + *name +
                       ": its regular expression closes a group that is not open; escape the parenthesis",
                   "tool_choice");
  made["function"]["parameters"]["properties"]["input"]["pattern"] = *pattern;
  return made;
}

}  // namespace

ToolChoice read_tool_choice(Fields& fields, const ordered_json& ordered, UnknownFields& unknown) {
  ToolChoice choice;
  read_tools(fields, ordered, choice, unknown);
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
      if (std::find(choice.demanded.begin(), choice.demanded.end(), *tool_name(tool)) != choice.demanded.end())
        request["tools"].push_back(constrained_tool(choice, tool, true));
  } else if (may_call) {
    request["text_too"] = true;
    for (const ordered_json& tool : choice.tools)
      if (tool_name(tool)) request["tools"].push_back(constrained_tool(choice, tool, false));
  } else {
    request["kind"] = static_cast<uint32_t>(spec->kind);
    request["text"] = spec->text;
    for (const ordered_json& tool : choice.tools) request["tools"].push_back(constrained_tool(choice, tool, false));
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
