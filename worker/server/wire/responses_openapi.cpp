// SPDX-License-Identifier: Apache-2.0
// Describes the routes of the Responses API for GET /openapi.json. The schemas mirror parse_responses() and
// read_input_items().
#include "worker/server/generation/generation_openapi.h"
#include "worker/server/replies/tool_choice.h"
#include "worker/server/wire/listed_items.h"
#include "worker/server/wire/responses.h"
#include "worker/server/wire/responses_request.h"

namespace pm::server {
namespace {

using nlohmann::json;

json parts_schema(const ServerContext& context, std::vector<std::string> types) {
  schema::Properties fields{{"type", schema::one_of(types), true}, {"text", text_schema, true}};
  for (const char* name : {"annotations", "logprobs", "prompt_cache_breakpoint"}) fields.push_back({name, any_schema});
  return schema::list(lenient(context, schema::object(fields)), 0, max_items);
}

json item_schema(const ServerContext& context, const char* type, const schema::Properties& fields) {
  schema::Properties all{{"type", schema::constant(type), std::string_view(type) != "message"},
                         {"id", text_schema},
                         {"status", text_schema}};
  schema::append(all, fields);
  return lenient(context, schema::object(all));
}

/// The parts of a message: texts, and images where the model reads them.
json user_parts_schema(const ServerContext& context) {
  const json texts = parts_schema(context, {"input_text", "text"});
  if (!context.content_form.images) return texts;
  const json image = lenient(context, schema::object({{"type", schema::constant("input_image"), true},
                                                      {"image_url", text_schema, true},
                                                      {"detail", text_schema}}));
  return schema::list(schema::any({texts.at("items"), image}), 0, max_items);
}

json input_schema(const ServerContext& context) {
  const auto message = [&](std::vector<std::string> roles, std::vector<json> content) {
    content.push_back(text_schema);
    return item_schema(context, "message",
                       {{"role", schema::one_of(roles), true},
                        {"content", schema::any(std::move(content)), true},
                        {"phase", text_schema}});
  };
  const json refusal =
      lenient(context, schema::object({{"type", schema::constant("refusal"), true}, {"refusal", text_schema, true}}));
  const json call = item_schema(context, "function_call",
                                {{"call_id", text_schema, true},
                                 {"name", text_schema, true},
                                 {"arguments", text_schema, true},
                                 {"async", any_schema},
                                 {"caller", any_schema},
                                 {"namespace", any_schema}});
  const auto output = [&](const char* type) {
    return item_schema(context, type,
                       {{"call_id", text_schema, true},
                        {"output", schema::any({text_schema, parts_schema(context, {"input_text", "text"})}), true},
                        {"name", any_schema},
                        {"caller", any_schema},
                        {"namespace", any_schema}});
  };
  const json custom_call = item_schema(context, "custom_tool_call",
                                       {{"call_id", text_schema, true},
                                        {"name", text_schema, true},
                                        {"input", text_schema, true},
                                        {"async", any_schema},
                                        {"caller", any_schema},
                                        {"namespace", any_schema}});
  const json reasoning = item_schema(context, "reasoning",
                                     {{"content", parts_schema(context, {"reasoning_text"})},
                                      {"summary", parts_schema(context, {"summary_text"})},
                                      {"encrypted_content", text_schema}});
  const json items = schema::any(
      {message({"user", "system", "developer"}, {user_parts_schema(context)}),
       message({"assistant"}, {parts_schema(context, {"output_text", "text"}), schema::list(refusal, 0, max_items)}),
       call, output("function_call_output"), custom_call, output("custom_tool_call_output"), reasoning});
  return schema::any({text_schema, schema::list(items, 1, max_items)});
}

/// A tool whose input is a text.
json custom_tool_schema(const ServerContext& context) {
  const json grammar = schema::object({{"type", schema::constant("grammar"), true},
                                       {"syntax", schema::one_of({"lark", "regex"}), true},
                                       {"definition", schema::text("At most 128 KiB", 1), true}});
  const json text = schema::object({{"type", schema::constant("text"), true}});
  schema::Properties fields{{"type", schema::constant("custom"), true},
                            {"name", schema::text("", 1), true},
                            {"description", text_schema},
                            {"format", schema::any({text, grammar}, "Of the input; held where a call is demanded")}};
  for (const char* name : {"allowed_callers", "async", "defer_loading"}) fields.push_back({name, any_schema});
  return lenient(context, schema::object(fields));
}

json tool_schema(const ServerContext& context) {
  schema::Properties fields{{"type", schema::constant("function"), true},
                            {"name", text_schema, true},
                            {"description", text_schema},
                            {"parameters", schema::open_object("JSON Schema of the arguments")},
                            {"strict", schema::boolean()}};
  for (const char* name : {"allowed_callers", "defer_loading", "output_schema"}) fields.push_back({name, any_schema});
  return schema::any({lenient(context, schema::object(fields)), custom_tool_schema(context)});
}

json tool_choice_schema(const ServerContext& context) {
  const json named = lenient(
      context, schema::object({{"type", schema::one_of({"function", "custom"}), true}, {"name", text_schema, true}}));
  const json allowed = lenient(context, schema::object({{"type", schema::constant("allowed_tools"), true},
                                                        {"mode", schema::one_of({"auto", "required"}), true},
                                                        {"tools", schema::list(named, 1, max_tools), true}}));
  return schema::any({schema::one_of({"auto", "none", "required"}), named, allowed});
}

json text_config_schema(const ServerContext& context) {
  const json schema_format = schema::object({{"type", schema::constant("json_schema"), true},
                                             {"name", text_schema, true},
                                             {"schema", schema::open_object("At most 128 KiB"), true},
                                             {"description", text_schema},
                                             {"strict", schema::boolean("Has no effect: a schema is always held")}});
  const json format =
      schema::any({schema::object({{"type", schema::one_of({"text", "json_object"}), true}}), schema_format});
  return lenient(context,
                 schema::object({{"format", format}, {"verbosity", schema::text("A variable of the template")}}));
}

json reasoning_config_schema(const ServerContext& context) {
  schema::Properties fields{{"effort", schema::text("reasoning_effort of the template; none turns thinking off")}};
  for (const char* name : {"summary", "generate_summary", "context", "mode"})
    fields.push_back({name, schema::text("Has no effect")});
  return lenient(context, schema::object(fields));
}

/// The fields that ResponsesReader reads.
schema::Properties responses_properties(const ServerContext& context) {
  schema::Properties all = copied_properties(context);
  json metadata = schema::open_object("Returned as it is");
  metadata["maxProperties"] = max_metadata;
  schema::append(all,
                 {{"input", input_schema(context), true},
                  {"instructions", text_schema},
                  {"previous_response_id", schema::text("A response that this server has stored")},
                  {"store", schema::boolean("Remember the response; default true")},
                  {"tools", schema::list(tool_schema(context), 0, max_tools)},
                  {"tool_choice", tool_choice_schema(context)},
                  {"parallel_tool_calls", schema::boolean()},
                  {"max_output_tokens", schema::integer(1, INT64_MAX, "What the window does not hold is cut")},
                  {"text", text_config_schema(context)},
                  {"reasoning", reasoning_config_schema(context)},
                  {"include", schema::list(text_schema, 0, 64, "message.output_text.logprobs adds log-probabilities")},
                  {"top_logprobs", schema::integer(0, 20, "Number of alternatives per token")},
                  {"stream", schema::boolean("Stream the response as server-sent events")},
                  {"stream_options", lenient(context, schema::object({{"include_obfuscation", schema::boolean()}}))},
                  {"truncation", schema::one_of({"disabled", "auto"}, "An input that is too long is refused")},
                  {"metadata", metadata},
                  {"max_tool_calls", schema::integer(0, INT64_MAX, "Has no effect")},
                  {"background", schema::constant(false)}});
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"})
    all.push_back({name, schema::text("Has no effect")});
  for (const char* name : {"conversation", "prompt", "moderation"}) all.push_back({name, null_schema});
  return all;
}

/// The response object. Fields that repeat the request are not described again.
json response_schema() {
  json made = schema::object({{"id", text_schema, true},
                              {"object", schema::constant("response"), true},
                              {"created_at", count_schema, true},
                              {"status", schema::one_of({"completed", "incomplete"}), true},
                              {"model", text_schema, true},
                              {"output", schema::list(schema::open_object()), true},
                              {"error", null_schema, true},
                              {"incomplete_details", schema::or_null(schema::open_object()), true},
                              {"usage", schema::open_object(), true}});
  made["additionalProperties"] = true;
  return made;
}

Operation of_stored(const char* summary, json reply) {
  Operation made;
  made.summary = summary;
  made.path_parameter = "response_id";
  made.reply = std::move(reply);
  made.error_statuses = {400, 404};
  return made;
}

}  // namespace

Operation describe_response(const ServerContext& context) {
  Operation made =
      generating("Responses, compatible with OpenAI's API; needs a chat template in the model's folder",
                 responses_properties(context), response_schema(), {{"input", "Hi"}, {"max_output_tokens", 4}});
  made.body = lenient(context, std::move(made.body));
  return made;
}

Operation describe_response_tokens(const ServerContext& context) {
  Operation made;
  made.summary = "Number of tokens of the prompt of POST /v1/responses";
  made.body = lenient(context, schema::object(responses_properties(context)));
  made.example = {{"input", "Hi"}};
  made.reply = schema::object(
      {{"object", schema::constant("response.input_tokens"), true}, {"input_tokens", count_schema, true}});
  made.error_statuses = {400, 404, 413};
  return made;
}

Operation describe_get_response() { return of_stored("A response that this server has stored", response_schema()); }

Operation describe_delete_response() {
  return of_stored("Forgets a response", schema::object({{"id", text_schema, true},
                                                         {"object", schema::constant("response"), true},
                                                         {"deleted", schema::constant(true), true}}));
}

Operation describe_input_items() {
  const json id = schema::or_null(schema::text("Of an item; null where data is empty"));
  Operation made = of_stored("The items that led to a response, those of earlier turns included",
                             schema::object({{"object", schema::constant("list"), true},
                                             {"data", schema::list(schema::open_object(), 0, max_listed_items), true},
                                             {"first_id", id, true},
                                             {"last_id", id, true},
                                             {"has_more", schema::boolean(), true}}));
  made.query = {{"limit", schema::integer(1, max_listed_items, "Number of items, default 20")},
                {"order", schema::one_of({"asc", "desc"}, "Default desc: the last item is the first")},
                {"after", schema::text("Id of the item after which the page begins")},
                {"include", schema::list(text_schema, 0, 64, "Has no effect: items are whole")}};
  return made;
}

}  // namespace pm::server
