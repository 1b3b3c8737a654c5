// SPDX-License-Identifier: Apache-2.0
// Describes the routes that generate for GET /openapi.json. The schemas mirror the parsers: read_group, read_common,
// read_openai, parse_completion, parse_chat, parse_generate and query_object.
#include "worker/server/generation/generation_openapi.h"

#include "worker/server/generation/chat.h"
#include "worker/server/generation/completion_request.h"
#include "worker/server/generation/completions.h"
#include "worker/server/generation/generate.h"
#include "worker/server/generation/generation_params.h"
#include "worker/server/replies/tool_choice.h"
#include "worker/server/serving/model_schema.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {

using nlohmann::json;

json lenient(const ServerContext& context, json object) {
  if (!context.strict_requests) object["additionalProperties"] = true;
  return object;
}

namespace {

using engine::Dialect;
using engine::ParameterGroup;

json ids_schema() { return schema::list(schema::integer(0, INT32_MAX), 1, 0, "Token ids"); }

json strings_schema(size_t max_count, const std::string& description) {
  return schema::any({schema::text("", 1), schema::list(schema::text("", 1), 0, max_count)}, description);
}

json prompts_schema(bool texts, bool ids) {
  std::vector<json> ways;
  if (texts) ways.insert(ways.end(), {text_schema, schema::list(text_schema, 1, max_prompts)});
  if (ids) ways.insert(ways.end(), {ids_schema(), schema::list(ids_schema(), 1, max_prompts)});
  return schema::any(std::move(ways));
}

/// The fields that read_model reads.
schema::Properties model_properties(const ServerContext& context) {
  return {{"model", model_schema(context.names)}, {"user", schema::text("Identifies the end user; has no effect")}};
}

json parameter_schema(const engine::Parameter& parameter, Dialect dialect, const std::string& description) {
  const engine::ParameterRange range = parameter.range_in(dialect);
  if (const auto* integers = std::get_if<base::IntegerRange>(&range))
    return schema::integer(integers->min, integers->max, description);
  if (const auto* numbers = std::get_if<base::NumberRange>(&range))
    return schema::number(numbers->min, numbers->max, description, numbers->above_min);
  if (parameter.type() == engine::ParameterType::Boolean) return schema::boolean(description);
  return schema::any({schema::boolean(), schema::one_of({"never"})}, description);
}

/// A field with the values of a row and another name.
schema::Property same_as(const engine::ParameterMember& member, const char* name, const std::string& description) {
  return {name, parameter_schema(engine::parameter_of(member), Dialect::OpenAi, description)};
}

/// The fields that read_group reads.
schema::Properties group_properties(ParameterGroup group, Dialect dialect) {
  schema::Properties made;
  for (const engine::Parameter& parameter : engine::generation_parameters()) {
    const char* name = parameter.name_in(dialect);
    if (parameter.group == group && name)
      made.push_back({name, parameter_schema(parameter, dialect, parameter.description_in(dialect))});
  }
  return made;
}

/// What read_logit_bias reads.
json logit_bias_schema() {
  return schema::described(
      {{"type", "object"},
       {"maxProperties", max_logit_biases},
       {"propertyNames", {{"pattern", "^[0-9]{1,9}$"}}},
       {"additionalProperties", {{"type", "number"}, {"minimum", -max_logit_bias}, {"maximum", max_logit_bias}}}},
      "Numbers that are added to the logits of these tokens, by token id");
}

/// The fields that read_common reads.
schema::Properties common_properties(Dialect dialect) {
  schema::Properties made = group_properties(ParameterGroup::Common, dialect);
  schema::append(made, {{"bad_words", strings_schema(max_bad_words, "Texts that must not be generated")},
                        {"bad_words_ids",
                         schema::list(ids_schema(), 0, max_bad_words, "Token sequences that must not be generated")},
                        {"logit_bias", logit_bias_schema()}});
  return made;
}

json constraint_text(const std::string& description) {
  return schema::described({{"type", "string"}, {"maxLength", max_constraint_bytes}}, description);
}

/// What read_response_format reads.
json response_format_schema() {
  const json named = schema::object({{"name", text_schema},
                                     {"description", text_schema},
                                     {"schema", schema::open_object("JSON Schema of at most 128 KiB")},
                                     {"strict", schema::boolean("Has no effect: a schema is always held")}});
  return schema::any({schema::object({{"type", schema::one_of({"text", "json_object"}), true}}),
                      schema::object({{"type", schema::constant("json_schema"), true}, {"json_schema", named, true}})},
                     "The answer is text, any JSON object, or JSON of a schema");
}

/// What read_structured_outputs reads.
json structured_outputs_schema() {
  return schema::object(
      {{"json", schema::any({schema::open_object(), constraint_text("")}, "JSON Schema of at most 128 KiB")},
       {"json_object", schema::boolean("Any JSON object")},
       {"regex", constraint_text("Regular expression that the whole answer matches")},
       {"choice", schema::list(schema::text("", 1), 1, max_choices, "The answer is one of these texts")},
       {"grammar", constraint_text("Context-free grammar in llguidance's Lark syntax")}},
      "One of its fields constrains the answer; not together with response_format");
}

/// What read_generate_constraint reads.
schema::Properties constraint_properties() {
  const json schema = schema::any({schema::open_object(), constraint_text("")}, "JSON Schema of at most 128 KiB"),
             named = schema::object({{"name", text_schema}, {"schema", schema::open_object(), true}});
  const auto of = [](const char* type, const json& value) {
    return schema::object({{"type", schema::constant(type), true}, {"value", value, true}});
  };
  const json regex = constraint_text("Regular expression that the whole answer matches");
  return {{"response_format", response_format_schema()},
          {"structured_outputs", structured_outputs_schema()},
          {"grammar", schema::any({of("json", schema), of("json_schema", named), of("regex", regex)},
                                  "The constraint as text-generation-inference spells it")}};
}

/// The fields that read_openai reads.
schema::Properties openai_properties(const ServerContext& context) {
  schema::Properties made = common_properties(Dialect::OpenAi);
  for (const ParameterGroup group : {ParameterGroup::Mode, ParameterGroup::Length, ParameterGroup::Search})
    schema::append(made, group_properties(group, Dialect::OpenAi));
  schema::append(
      made, {{"stop", strings_schema(16, "Stop strings: the answer ends before the first of them")},
             {"stream", schema::boolean("Stream the answer as server-sent events")},
             {"stream_options", lenient(context, schema::object({{"include_usage", schema::boolean()},
                                                                 {"include_obfuscation", schema::boolean()}},
                                                                "Allowed only with stream: true"))},
             {"include_usage", schema::boolean("Has no effect; for stream_options.include_usage see there")},
             {"response_format", response_format_schema()},
             {"structured_outputs", structured_outputs_schema()},
             {"return_token_ids", schema::boolean("Add token_ids to each choice")},
             {"prompt_logprobs", schema::integer(0, max_logprobs,
                                                 "Return log-probabilities of the prompt's tokens and of this many "
                                                 "alternatives; not with stream")}});
  for (const UnsupportedField& one : unsupported_fields()) made.push_back({one.name, null_schema});
  schema::append(made, model_properties(context));
  return made;
}

json usage_schema() {
  const json details = schema::object({{"cached_tokens", count_schema, true}});
  return schema::object({{"prompt_tokens", count_schema, true},
                         {"completion_tokens", count_schema, true},
                         {"total_tokens", count_schema, true},
                         {"prompt_tokens_details", details, true}});
}

json openai_reply(const char* object, json choice) {
  choice["properties"]["token_ids"] = schema::list(count_schema);
  return schema::object({{"id", text_schema, true},
                         {"object", schema::constant(object), true},
                         {"created", count_schema, true},
                         {"model", text_schema, true},
                         {"choices", schema::list(std::move(choice)), true},
                         {"usage", usage_schema(), true}});
}

json finish_schema() { return schema::or_null(schema::one_of({"stop", "length"})); }

/// The call of a custom tool.
json custom_call_schema() { return schema::object({{"name", text_schema, true}, {"input", text_schema, true}}); }

json message_schema(const ServerContext& context) {
  const json empty =
      schema::any({null_schema, schema::list(json::object(), 0), {{"type", "object"}, {"maxProperties", 0}}});
  json none = empty;
  none["anyOf"][1]["maxItems"] = 0;
  const json part =
      lenient(context, schema::object({{"type", schema::constant("text"), true}, {"text", text_schema, true}}));
  std::vector<json> parts{part};
  if (context.content_form.images) {
    const json url = lenient(context, schema::object({{"url", text_schema, true}, {"detail", text_schema}}));
    parts.push_back(lenient(context, schema::object({{"type", schema::constant("image_url"), true},
                                                     {"image_url", schema::any({url, text_schema}), true}})));
  }
  const json call = {
      {"type", "object"}, {"required", {"function"}}, {"properties", {{"function", {{"type", "object"}}}}}};
  json custom = schema::open_object();
  custom["required"] = {"type", "custom"};
  custom["properties"] = {{"type", schema::constant("custom")}, {"custom", custom_call_schema()}};
  schema::Properties fields{
      {"role", schema::one_of({"system", "developer", "user", "assistant", "tool"}), true},
      {"content", schema::any({text_schema, schema::list(parts.size() == 1 ? part : schema::any(std::move(parts)))})},
      {"tool_calls", schema::list(schema::any({call, custom}))}};
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"})
    fields.push_back({name, text_schema});
  for (const char* name : {"refusal", "annotations", "audio", "function_call"}) fields.push_back({name, none});
  return lenient(context, schema::object(fields));
}

/// The fields that parse_generate reads, without the inputs and the fields that a query string cannot set.
schema::Properties generate_properties(const ServerContext& context) {
  schema::Properties made = common_properties(Dialect::HuggingFace);
  schema::append(made, group_properties(ParameterGroup::Search, Dialect::HuggingFace));
  schema::append(made, {{"num_beam_groups", schema::constant(1)}, {"diversity_penalty", schema::constant(0)}});
  schema::append(made, group_properties(ParameterGroup::Length, Dialect::HuggingFace));
  schema::append(made,
                 {{"eos_token_id", schema::any({schema::integer(0, INT32_MAX), ids_schema()}, "Ids of the end tokens")},
                  {"stop", strings_schema(16, "Stop strings: the answer ends with the first of them")},
                  {"stop_strings", strings_schema(16, "Alias of stop")}});
  schema::append(made, group_properties(ParameterGroup::Mode, Dialect::HuggingFace));
  schema::append(made, {{"return_full_text", schema::boolean("generated_text begins with the input; default true")},
                        {"use_cache", schema::boolean("Has no effect")},
                        {"best_of", schema::constant(1)},
                        {"decoder_input_details", schema::constant(false)},
                        {"watermark", schema::constant(false)}});
  for (const char* name : {"top_n_tokens", "truncate", "adapter_id"}) made.push_back({name, null_schema});
  schema::append(made, model_properties(context));
  return made;
}

/// The passages that passages_json() returns.
json passages_schema() {
  return schema::list(schema::object({{"number", count_schema, true},
                                      {"score", schema::real("Inner product with the question's vector"), true},
                                      {"title", text_schema, true},
                                      {"text", text_schema, true}}));
}

json generated_schema(const ServerContext& context) {
  const json token = schema::object({{"id", count_schema, true},
                                     {"text", text_schema, true},
                                     {"logprob", schema::or_null(schema::real()), true},
                                     {"special", schema::boolean(), true}});
  json details = schema::object({{"finish_reason", schema::one_of({"stop_sequence", "eos_token", "length"}), true},
                                 {"generated_tokens", count_schema, true},
                                 {"seed", schema::or_null(count_schema), true},
                                 {"prefill", schema::list(json::object()), true},
                                 {"tokens", schema::list(token), true}});
  json made = schema::object({});
  made["properties"] = {
      {"generated_text", text_schema},
      {"sequence", schema::list(count_schema)},
      {"score", schema::or_null(schema::real("Score of the beam, as sequences_scores in transformers"))},
      {"details", details}};
  if (context.capabilities.retrieves) made["properties"]["passages"] = passages_schema();
  return made;
}

/// What prompt_logprobs() returns.
json prompt_logprobs_schema() { return schema::list(schema::or_null(schema::open_object())); }

}  // namespace

Operation generating(std::string summary, const schema::Properties& body, json reply, json example) {
  Operation made;
  made.summary = std::move(summary);
  made.body = schema::object(body);
  made.example = std::move(example);
  made.reply = std::move(reply);
  json event = schema::object({{"data", schema::text("One chunk of the answer as JSON"), true}},
                              "With stream: true, a sequence of such events");
  event["properties"]["event"] = text_schema;
  made.replies["text/event-stream"] = event;
  made.error_statuses = model_error_statuses;
  return made;
}

schema::Properties copied_properties(const ServerContext& context) {
  schema::Properties made = common_properties(Dialect::OpenAi);
  for (const ParameterGroup group : {ParameterGroup::Mode, ParameterGroup::Length})
    schema::append(made, group_properties(group, Dialect::OpenAi));
  schema::append(made, {model_properties(context).front()});
  return made;
}

Operation describe_completion(const ServerContext& context) {
  schema::Properties own = openai_properties(context);
  schema::append(
      own, {{"prompt", prompts_schema(true, true), true},
            {"max_tokens", schema::integer(0, INT32_MAX, "Maximum number of new tokens; default 16")},
            same_as(&engine::SearchParams::num_return_sequences, "best_of",
                    "Completions generated per prompt, of which the n likeliest are returned; default n"),
            {"logprobs",
             schema::integer(0, max_logprobs, "Return log-probabilities of the tokens and of this many alternatives")},
            {"echo", schema::boolean("The text begins with the prompt")},
            {"suffix", null_schema}});
  const json numbers = schema::list(schema::or_null(schema::real()));
  const json logprobs = schema::object({{"tokens", schema::list(text_schema), true},
                                        {"token_logprobs", numbers, true},
                                        {"top_logprobs", schema::list(schema::or_null(schema::open_object())), true},
                                        {"text_offset", schema::list(count_schema), true}});
  json choice = schema::object({{"index", count_schema, true},
                                {"text", text_schema, true},
                                {"logprobs", schema::or_null(logprobs), true},
                                {"finish_reason", finish_schema(), true}});
  choice["properties"]["prompt_logprobs"] = prompt_logprobs_schema();
  if (context.capabilities.retrieves) choice["properties"]["passages"] = passages_schema();
  Operation made =
      generating("Completions of prompts, compatible with OpenAI's API", own, openai_reply("text_completion", choice),
                 {{"prompt", "Once upon a time"}, {"max_tokens", 4}});
  made.body = lenient(context, std::move(made.body));
  return made;
}

namespace {

json tool_choice_schema() {
  const json function = schema::object({{"type", schema::constant("function"), true},
                                        {"function", schema::object({{"name", text_schema, true}}), true}});
  const json custom = schema::object(
      {{"type", schema::constant("custom"), true}, {"custom", schema::object({{"name", text_schema, true}}), true}});
  const json allowed = schema::object({{"mode", schema::one_of({"auto", "required"}), true},
                                       {"tools", schema::list(schema::any({function, custom}), 1), true}});
  return schema::any(
      {schema::one_of({"auto", "none", "required"}), function, custom,
       schema::object({{"type", schema::constant("allowed_tools"), true}, {"allowed_tools", allowed, true}})});
}

/// A tool whose input is a text.
json custom_tool_schema(const ServerContext& context) {
  const json grammar = schema::object(
      {{"syntax", schema::one_of({"lark", "regex"}), true}, {"definition", schema::text("At most 128 KiB", 1), true}});
  const json format =
      schema::any({schema::object({{"type", schema::constant("text"), true}}),
                   schema::object({{"type", schema::constant("grammar"), true}, {"grammar", grammar, true}})},
                  "Of the input; held where a call is demanded");
  const json custom =
      schema::object({{"name", schema::text("", 1), true}, {"description", text_schema}, {"format", format}});
  return lenient(context, schema::object({{"type", schema::constant("custom"), true},
                                          {"custom", lenient(context, custom), true}}));
}

/// The message of a reply: its content is null where it only calls tools.
json reply_message_schema() {
  const json function = schema::object({{"name", text_schema, true}, {"arguments", text_schema, true}});
  const json call = schema::object(
      {{"id", text_schema, true}, {"type", schema::constant("function"), true}, {"function", function, true}});
  const json custom = schema::object(
      {{"id", text_schema, true}, {"type", schema::constant("custom"), true}, {"custom", custom_call_schema(), true}});
  return schema::object({{"role", schema::constant("assistant"), true},
                         {"content", schema::or_null(text_schema), true},
                         {"refusal", null_schema, true},
                         {"reasoning", text_schema},
                         {"reasoning_content", text_schema},
                         {"tool_calls", schema::list(schema::any({call, custom}), 1)}});
}

}  // namespace

Operation describe_chat_completion(const ServerContext& context) {
  schema::Properties own = openai_properties(context);
  json tool = schema::open_object();
  tool["properties"]["type"] = schema::constant("function");
  const json tools = schema::any({std::move(tool), custom_tool_schema(context)});
  schema::append(
      own,
      {{"messages", schema::list(message_schema(context), 1, 2048), true},
       {"tools", schema::list(tools, 0, max_tools, "Tools that the model may call, given to its chat template")},
       {"tool_choice", tool_choice_schema()},
       {"parallel_tool_calls", schema::boolean("false: one call at most")},
       {"continue_final_message", schema::boolean("Continue the last message instead of adding one")},
       {"add_generation_prompt", schema::boolean("Default true")},
       {"chat_template_kwargs", schema::open_object("Variables of the chat template")},
       {"reasoning_effort", text_schema},
       {"documents", schema::list(json::object())},
       same_as(&engine::GenerationConfig::max_new_tokens, "max_tokens", ""),
       same_as(&engine::GenerationConfig::max_new_tokens, "max_completion_tokens", "Replaces max_tokens"),
       {"logprobs", schema::boolean("Return log-probabilities of the tokens")},
       {"top_logprobs", schema::integer(0, max_logprobs, "Number of alternatives per token; needs logprobs: true")},
       {"modalities", schema::constant({"text"})},
       {"metadata", schema::open_object("Has no effect")},
       {"store", schema::constant(false)}});
  for (const char* name : {"safety_identifier", "prompt_cache_key", "service_tier"})
    own.push_back({name, schema::text("Has no effect")});
  for (const char* name :
       {"functions", "function_call", "chat_template", "audio", "prediction", "web_search_options", "verbosity"})
    own.push_back({name, null_schema});
  const json bytes = schema::or_null(schema::list(schema::integer(0, 255)));
  const json other =
      schema::object({{"token", text_schema, true}, {"logprob", schema::real(), true}, {"bytes", bytes, true}});
  const json token = schema::object({{"token", text_schema, true},
                                     {"logprob", schema::real(), true},
                                     {"bytes", bytes, true},
                                     {"top_logprobs", schema::list(other), true}});
  const json logprobs = schema::object({{"content", schema::list(token), true}, {"refusal", null_schema, true}});
  const json finish = schema::one_of({"stop", "length", "tool_calls"});
  const json choice = schema::object({{"index", count_schema, true},
                                      {"message", reply_message_schema(), true},
                                      {"logprobs", schema::or_null(logprobs), true},
                                      {"finish_reason", finish, true}});
  json reply = openai_reply("chat.completion", choice);
  reply["properties"]["prompt_logprobs"] = prompt_logprobs_schema();
  Operation made =
      generating("Chat completions, compatible with OpenAI's API; needs a chat template in the model's folder", own,
                 std::move(reply), {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 4}});
  made.body = lenient(context, std::move(made.body));
  return made;
}

Operation describe_generate(const ServerContext& context) {
  schema::Properties own = generate_properties(context);
  const bool images = context.capabilities.captions_images();
  if (images)
    own.push_back({"inputs", images_schema(), true});
  else
    schema::append(own, {{"inputs", prompts_schema(true, false)}, {"input_ids", prompts_schema(false, true)}});
  schema::append(own, {{"details", schema::boolean("Add details of the tokens to each result")},
                       {"stream", schema::boolean("Stream the answer as server-sent events")},
                       {"return_token_ids", schema::boolean("Add the ids that generate of transformers returns")}});
  schema::append(own, constraint_properties());
  own.push_back(
      {"parameters", schema::object(own,
                                    "Options as Hugging Face's clients send them. They are merged with the fields "
                                    "beside it; a field may stand in one place only")});
  const json one = generated_schema(context), several = schema::list(one);
  Operation made = generating("Generates text with Hugging Face's generation parameters", own,
                              schema::any({one, several, schema::list(several)}),
                              {{"inputs", "Once upon a time"}, {"max_new_tokens", 4}});
  made.body["anyOf"] =
      json::array({{{"required", {"inputs"}}}, {{"required", {"input_ids"}}}, {{"required", {"parameters"}}}});
  return made;
}

Operation describe_generate_text(const ServerContext& context) {
  Operation made;
  made.summary = "Continues the text in the path with Hugging Face's generation parameters";
  made.path_parameter = "text";
  for (auto& property : generate_properties(context))
    if (property.schema != null_schema) made.query.push_back(std::move(property));
  made.query.push_back(same_as(&engine::GenerationConfig::max_new_tokens, "max_tokens", "Alias of max_new_tokens"));
  made.reply = schema::object(
      {{"inputs", text_schema, true}, {"outputs", schema::any({text_schema, schema::list(text_schema)}), true}});
  made.error_statuses = model_error_statuses;
  return made;
}

}  // namespace pm::server
