// SPDX-License-Identifier: Apache-2.0
// Describes the routes in the forms of other APIs for GET /openapi.json. The schemas mirror parse_messages().
#include "worker/server/generation/generation_openapi.h"
#include "worker/server/replies/tool_choice.h"
#include "worker/server/wire/messages.h"
#include "worker/server/wire/messages_request.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// A block of a request: those of one type have these fields.
json block(const ServerContext& context, const char* type, const schema::Properties& fields) {
  schema::Properties all{{"type", schema::constant(type), true}};
  schema::append(all, fields);
  return lenient(context, schema::object(all));
}

json text_block(const ServerContext& context) {
  return block(context, "text",
               {{"text", text_schema, true}, {"cache_control", any_schema}, {"citations", any_schema}});
}

json texts_schema(const ServerContext& context) {
  return schema::any({text_schema, schema::list(text_block(context))});
}

/// The schema of a message, as MessagesReader::read_turn reads it.
json turn_schema(const ServerContext& context) {
  const json text = text_block(context), none = {{"cache_control", any_schema}};
  const json result = block(context, "tool_result",
                            {{"tool_use_id", text_schema, true},
                             {"content", texts_schema(context)},
                             {"is_error", schema::boolean("Has no effect: the text says what failed")},
                             {"cache_control", any_schema},
                             {"toolset_name", any_schema}});
  const json call = block(context, "tool_use",
                          {{"id", text_schema, true},
                           {"name", text_schema, true},
                           {"input", schema::open_object(), true},
                           {"cache_control", any_schema},
                           {"caller", any_schema},
                           {"toolset_name", any_schema}});
  const json thinking = block(context, "thinking", {{"thinking", text_schema, true}, {"signature", text_schema}});
  const json redacted = block(context, "redacted_thinking", {{"data", text_schema}});
  std::vector<json> of_user{text, result};
  if (context.content_form.images) {
    const json file = block(context, "base64", {{"media_type", text_schema, true}, {"data", text_schema, true}}),
               url = block(context, "url", {{"url", text_schema, true}});
    of_user.push_back(
        block(context, "image", {{"source", schema::any({file, url}), true}, {"cache_control", any_schema}}));
  }
  const auto turn = [&](const char* role, std::vector<json> blocks) {
    return lenient(
        context, schema::object(
                     {{"role", schema::constant(role), true},
                      {"content",
                       schema::any({text_schema, schema::list(schema::any(std::move(blocks)), 0, max_turns)}), true}}));
  };
  return schema::any(
      {turn("user", std::move(of_user)), turn("assistant", {text, thinking, redacted, call}), turn("system", {text})});
}

json tool_schema(const ServerContext& context) {
  schema::Properties fields{{"type", schema::constant("custom")},
                            {"name", text_schema, true},
                            {"description", text_schema},
                            {"input_schema", schema::open_object("JSON Schema of the input"), true},
                            {"strict", schema::boolean()}};
  for (const char* name :
       {"cache_control", "allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"})
    fields.push_back({name, any_schema});
  return lenient(context, schema::object(fields));
}

json tool_choice_schema(const ServerContext& context) {
  const schema::Property single{"disable_parallel_tool_use", schema::boolean()};
  std::vector<json> ways;
  for (const char* type : {"auto", "none", "any"}) ways.push_back(block(context, type, {single}));
  ways.push_back(block(context, "tool", {single, {"name", text_schema, true}}));
  return schema::any(std::move(ways), "Types any and tool demand a call");
}

json output_format_schema() {
  return schema::object(
      {{"type", schema::constant("json_schema"), true}, {"schema", schema::open_object("At most 128 KiB"), true}});
}

json output_config_schema(const ServerContext& context) {
  return lenient(context, schema::object({{"effort", schema::text("reasoning_effort of the template")},
                                          {"format", output_format_schema()}}));
}

json thinking_schema(const ServerContext& context) {
  return lenient(context,
                 schema::object({{"type", schema::one_of({"enabled", "adaptive", "between_tools", "disabled"}), true},
                                 {"budget_tokens", schema::integer(0, INT64_MAX, "Has no effect")},
                                 {"display", schema::text("Has no effect")}}));
}

/// The fields that MessagesReader reads.
schema::Properties messages_properties(const ServerContext& context, bool counts_tokens) {
  schema::Properties all = copied_properties(context);
  schema::append(all,
                 {{"messages", schema::list(turn_schema(context), 1, max_turns), true},
                  {"max_tokens", schema::integer(1, INT64_MAX, "What the window does not hold is cut"), !counts_tokens},
                  {"system", texts_schema(context)},
                  {"tools", schema::list(tool_schema(context), 0, max_tools)},
                  {"tool_choice", tool_choice_schema(context)},
                  {"stop_sequences", schema::list(schema::text("", 1), 0, max_stop_sequences)},
                  {"stream", schema::boolean("Stream the reply as server-sent events")},
                  {"thinking", thinking_schema(context)},
                  {"output_config", output_config_schema(context)},
                  {"output_format", output_format_schema()},
                  {"thread", null_schema},
                  {"metadata", schema::open_object("Has no effect")},
                  {"container", null_schema},
                  {"mcp_servers", schema::constant(json::array())}});
  for (const char* name : {"service_tier", "inference_geo", "speed", "user_profile_id", "workspace_id"})
    all.push_back({name, schema::text("Has no effect")});
  for (const char* name : {"cache_control", "diagnostics"}) all.push_back({name, any_schema});
  return all;
}

json message_reply() {
  const json usage = schema::object({{"input_tokens", count_schema, true},
                                     {"cache_creation_input_tokens", count_schema, true},
                                     {"cache_read_input_tokens", count_schema, true},
                                     {"output_tokens", count_schema, true}});
  const auto part = [](const char* type, const schema::Properties& fields) {
    schema::Properties all{{"type", schema::constant(type), true}};
    schema::append(all, fields);
    return schema::object(all);
  };
  const json blocks = schema::any(
      {part("text", {{"text", text_schema, true}, {"citations", null_schema, true}}),
       part("thinking", {{"thinking", text_schema, true}, {"signature", text_schema, true}}),
       part("tool_use",
            {{"id", text_schema, true}, {"name", text_schema, true}, {"input", schema::open_object(), true}})});
  return schema::object({{"id", text_schema, true},
                         {"type", schema::constant("message"), true},
                         {"role", schema::constant("assistant"), true},
                         {"model", text_schema, true},
                         {"content", schema::list(blocks), true},
                         {"stop_reason",
                          schema::one_of({"end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal",
                                          "model_context_window_exceeded"}),
                          true},
                         {"stop_sequence", schema::or_null(text_schema), true},
                         {"usage", usage, true}});
}

}  // namespace

Operation describe_message(const ServerContext& context) {
  Operation made = generating("Messages, compatible with Anthropic's API; needs a chat template in the model's folder",
                              messages_properties(context, false), message_reply(),
                              {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 4}});
  made.body = lenient(context, std::move(made.body));
  made.error_schema = "MessagesError";
  return made;
}

Operation describe_message_tokens(const ServerContext& context) {
  Operation made;
  made.summary = "Number of tokens of the prompt of POST /v1/messages";
  made.body = lenient(context, schema::object(messages_properties(context, true)));
  made.example = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  made.reply = schema::object({{"input_tokens", count_schema, true}});
  made.error_statuses = {400, 404, 413};
  made.error_schema = "MessagesError";
  return made;
}

}  // namespace pm::server
