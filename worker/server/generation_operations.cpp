// What GET /openapi.json says of the routes that generate; their parsers are read_common and read_openai, parse_completion, parse_chat,
// parse_generate and query_object.
#include "worker/server/asked.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;

const json kCount = schema::integer(0, INT64_MAX);
const json kText = schema::text();
const json kNull = {{"type", "null"}};

json ids_schema() { return schema::list(schema::integer(0, INT32_MAX), 1, 0, "Token ids"); }

json texts_in_schema(size_t most, const std::string& description) {
  return schema::any({schema::text("", 1), schema::list(schema::text("", 1), 0, most)}, description);
}

json prompts_schema(bool texts, bool ids) {
  std::vector<json> ways;
  if (texts) ways.insert(ways.end(), {kText, schema::list(kText, 1, kPrompts)});
  if (ids) ways.insert(ways.end(), {ids_schema(), schema::list(ids_schema(), 1, kPrompts)});
  return schema::any(std::move(ways));
}

void append(schema::Properties& to, const schema::Properties& more) { to.insert(to.end(), more.begin(), more.end()); }

/// read_model.
schema::Properties model_properties(const Serving& serving) {
  return {{"model", schema::described(schema::one_of({serving.model}), "The served name")}, {"user", schema::text("Says who asks; changes nothing")}};
}

/// read_common.
schema::Properties common_properties() {
  return {{"top_p", schema::number(0, 1, "Only the likeliest tokens that have this probability together", true)},
          {"top_k", schema::integer(-1, INT32_MAX, "Only so many of the likeliest tokens; 0 or -1: all")},
          {"min_p", schema::number(0, 1, "Only tokens with this share of the best one's probability")},
          {"typical_p", schema::number(0, 1, "Locally typical sampling", true)},
          {"presence_penalty", schema::number(-2, 2, "Of tokens that the answer has already")},
          {"frequency_penalty", schema::number(-2, 2, "Of tokens by how often the answer has them")},
          {"repetition_penalty", schema::number(0, 100, "Of tokens that prompt or answer have already; 1: none", true)},
          {"no_repeat_ngram_size", schema::integer(0, INT32_MAX, "No sequence of so many tokens comes twice; 0: off")},
          {"seed", schema::integer(INT64_MIN, INT64_MAX, "The same seed gives the same answer")},
          {"max_time", schema::number(0, 86'400, "Seconds after which no token is begun", true)},
          {"ignore_eos", schema::boolean("Go on after an end token")},
          {"bad_words", texts_in_schema(kBadWords, "Texts that must not come")},
          {"bad_words_ids", schema::list(ids_schema(), 0, kBadWords, "The same as token ids")}};
}

/// read_openai.
schema::Properties openai_properties(const Serving& serving) {
  schema::Properties made = common_properties();
  append(made, {{"temperature", schema::number(0, 2, "0: always the likeliest token")},
                {"min_tokens", schema::integer(0, INT32_MAX, "No end token before so many")},
                {"stop", texts_in_schema(16, "Texts at which the answer ends")},
                {"n", schema::integer(1, kChoices, "Answers to each prompt")},
                {"stream", schema::boolean("Answer as server-sent events")},
                {"stream_options", schema::object({{"include_usage", schema::boolean()}, {"include_obfuscation", schema::boolean()}}, "With stream: true only")},
                {"logit_bias", schema::constant(json::object())},
                {"return_token_ids", schema::boolean("Choices carry token_ids")}});
  append(made, model_properties(serving));
  return made;
}

json usage_schema() {
  const json details = schema::object({{"cached_tokens", kCount, true}});
  return schema::object({{"prompt_tokens", kCount, true}, {"completion_tokens", kCount, true}, {"total_tokens", kCount, true}, {"prompt_tokens_details", details, true}});
}

json openai_reply(const char* object, json choice) {
  choice["properties"]["token_ids"] = schema::list(kCount);
  return schema::object({{"id", kText, true}, {"object", schema::constant(object), true}, {"created", kCount, true}, {"model", kText, true}, {"choices", schema::list(std::move(choice)), true}, {"usage", usage_schema(), true}});
}

json finish_schema() { return schema::or_null(schema::one_of({"stop", "length"})); }

Operation generating(std::string summary, const schema::Properties& body, json reply, json example) {
  Operation made;
  made.summary = std::move(summary);
  made.body = schema::object(body);
  made.example = std::move(example);
  made.reply = std::move(reply);
  json event = schema::object({{"data", schema::text("A piece of the answer in JSON"), true}}, "With stream: true, one after the other");
  event["properties"]["event"] = kText;
  made.replies["text/event-stream"] = event;
  made.refusals = kModelRefusals;
  return made;
}

json message_schema() {
  const json empty = schema::any({kNull, schema::list(json::object(), 0), {{"type", "object"}, {"maxProperties", 0}}});
  json none = empty;
  none["anyOf"][1]["maxItems"] = 0;
  const json part = schema::object({{"type", schema::constant("text"), true}, {"text", kText, true}});
  const json call = {{"type", "object"}, {"required", {"function"}}, {"properties", {{"function", {{"type", "object"}}}}}};
  schema::Properties fields{{"role", schema::one_of({"system", "developer", "user", "assistant", "tool"}), true},
                            {"content", schema::any({kText, schema::list(part)})},
                            {"tool_calls", schema::list(call)}};
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) fields.push_back({name, kText});
  for (const char* name : {"refusal", "annotations", "audio", "function_call"}) fields.push_back({name, none});
  return schema::object(fields);
}

/// What parse_generate reads beside inputs and what a query cannot ask for.
schema::Properties generate_properties(const Serving& serving) {
  schema::Properties made = common_properties();
  append(made, {{"num_beams", schema::integer(1, 256, "Beams of a search; 1: none")},
                {"num_return_sequences", schema::integer(1, kChoices, "Answers to each input")},
                {"length_penalty", schema::number(-100, 100, "Of a search: the exponent of the length that scores are divided by")},
                {"early_stopping", schema::any({schema::boolean(), schema::one_of({"never"})}, "Of a search: when it ends")},
                {"num_beam_groups", schema::constant(1)},
                {"diversity_penalty", schema::constant(0)},
                {"max_new_tokens", schema::integer(1, INT64_MAX, "Tokens of an answer; default the checkpoint's, else 20")},
                {"max_length", schema::integer(1, INT64_MAX, "Tokens of input and answer together")},
                {"min_new_tokens", schema::integer(0, INT32_MAX, "No end token before so many")},
                {"min_length", schema::integer(0, INT32_MAX, "The same of input and answer together")},
                {"forced_bos_token_id", schema::integer(0, INT32_MAX, "The second token of a sequence: an answer's first where it has a start of its own, such as the language to translate into")},
                {"forced_eos_token_id", schema::integer(0, INT32_MAX, "The last of as many tokens as are asked for")},
                {"eos_token_id", schema::any({schema::integer(0, INT32_MAX), ids_schema()}, "End tokens")},
                {"stop", texts_in_schema(16, "Texts at which an answer ends")},
                {"stop_strings", texts_in_schema(16, "The same")},
                {"do_sample", schema::boolean("Draw tokens instead of taking the likeliest")},
                {"temperature", schema::number(0, 1000, "Of draws", true)},
                {"return_full_text", schema::boolean("Texts begin with the input; default true")},
                {"use_cache", schema::boolean("Changes nothing")},
                {"best_of", schema::constant(1)},
                {"decoder_input_details", schema::constant(false)},
                {"watermark", schema::constant(false)}});
  for (const char* name : {"top_n_tokens", "truncate", "grammar", "adapter_id"}) made.push_back({name, kNull});
  append(made, model_properties(serving));
  return made;
}

json generated_schema() {
  const json token = schema::object({{"id", kCount, true}, {"text", kText, true}, {"logprob", schema::or_null(schema::real()), true}, {"special", schema::boolean(), true}});
  json details = schema::object({{"finish_reason", schema::one_of({"stop_sequence", "eos_token", "length"}), true}, {"generated_tokens", kCount, true}, {"seed", schema::or_null(kCount), true},
                                 {"prefill", schema::list(json::object()), true}, {"tokens", schema::list(token), true}});
  json made = schema::object({});
  made["properties"] = {{"generated_text", kText}, {"sequence", schema::list(kCount)}, {"score", schema::or_null(schema::real("Of a beam, as Hugging Face's sequences_scores"))}, {"details", details}};
  return made;
}

}  // namespace

Operation describe_completion(const Serving& serving) {
  schema::Properties own = openai_properties(serving);
  append(own, {{"prompt", prompts_schema(true, true), true},
               {"max_tokens", schema::integer(1, INT64_MAX, "Default 16")},
               {"best_of", schema::integer(1, kChoices, "Equal to n")},
               {"logprobs", schema::integer(0, kLogprobs, "Log-probabilities of tokens and so many alternatives")},
               {"echo", schema::boolean("The prompt before the answer")},
               {"suffix", kNull}});
  const json numbers = schema::list(schema::real());
  const json logprobs = schema::object({{"tokens", schema::list(kText), true}, {"token_logprobs", numbers, true}, {"top_logprobs", schema::list(schema::open_object()), true}, {"text_offset", schema::list(kCount), true}});
  const json choice = schema::object({{"index", kCount, true}, {"text", kText, true}, {"logprobs", schema::or_null(logprobs), true}, {"finish_reason", finish_schema(), true}});
  return generating("Continues prompts, OpenAI's", own, openai_reply("text_completion", choice), {{"prompt", "Once upon a time"}, {"max_tokens", 4}});
}

Operation describe_chat_completion(const Serving& serving) {
  schema::Properties own = openai_properties(serving);
  const json objects = schema::list(schema::open_object());
  append(own, {{"messages", schema::list(message_schema(), 1, 2048), true},
               {"tools", schema::list(schema::open_object(), 0, 512, "Shown to the model; its calls come back as text")},
               {"tool_choice", schema::one_of({"auto", "none"})},
               {"parallel_tool_calls", schema::boolean("Changes nothing")},
               {"continue_final_message", schema::boolean("The answer continues the last message")},
               {"add_generation_prompt", schema::boolean("Default true")},
               {"chat_template_kwargs", schema::open_object("Values for the chat template")},
               {"reasoning_effort", kText},
               {"documents", schema::list(json::object())},
               {"max_tokens", schema::integer(1, INT64_MAX)},
               {"max_completion_tokens", schema::integer(1, INT64_MAX, "The newer name of max_tokens")},
               {"logprobs", schema::boolean("Log-probabilities of tokens")},
               {"top_logprobs", schema::integer(0, kLogprobs, "With logprobs: true, so many alternatives")},
               {"response_format", schema::constant({{"type", "text"}})},
               {"modalities", schema::constant({"text"})},
               {"metadata", schema::open_object("Changes nothing")},
               {"store", schema::constant(false)}});
  for (const char* name : {"safety_identifier", "prompt_cache_key", "service_tier"}) own.push_back({name, schema::text("Changes nothing")});
  for (const char* name : {"functions", "function_call", "chat_template", "audio", "prediction", "web_search_options", "verbosity"}) own.push_back({name, kNull});
  const json bytes = schema::or_null(schema::list(schema::integer(0, 255)));
  const json other = schema::object({{"token", kText, true}, {"logprob", schema::real(), true}, {"bytes", bytes, true}});
  const json token = schema::object({{"token", kText, true}, {"logprob", schema::real(), true}, {"bytes", bytes, true}, {"top_logprobs", schema::list(other), true}});
  const json logprobs = schema::object({{"content", schema::list(token), true}, {"refusal", kNull, true}});
  const json message = schema::object({{"role", schema::constant("assistant"), true}, {"content", kText, true}, {"refusal", kNull, true}});
  const json choice = schema::object({{"index", kCount, true}, {"message", message, true}, {"logprobs", schema::or_null(logprobs), true}, {"finish_reason", finish_schema(), true}});
  return generating("Answers in a conversation, OpenAI's; needs a chat template in the model's folder", own, openai_reply("chat.completion", choice),
                    {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 4}});
}

Operation describe_generate(const Serving& serving) {
  schema::Properties own = generate_properties(serving);
  append(own, {{"inputs", prompts_schema(true, false)},
               {"input_ids", prompts_schema(false, true)},
               {"details", schema::boolean("Results carry their tokens")},
               {"stream", schema::boolean("Answer as server-sent events")},
               {"return_token_ids", schema::boolean("Results carry the ids that transformers' generate returns")}});
  own.push_back({"parameters", schema::object(own, "Where Hugging Face's clients put all but inputs: laid over the fields beside it; none may be given twice")});
  const json one = generated_schema(), several = schema::list(one);
  Operation made = generating("Continues inputs by Hugging Face's generation parameters", own, schema::any({one, several, schema::list(several)}), {{"inputs", "Once upon a time"}, {"max_new_tokens", 4}});
  made.body["anyOf"] = json::array({{{"required", {"inputs"}}}, {{"required", {"input_ids"}}}, {{"required", {"parameters"}}}});
  return made;
}

Operation describe_generate_text(const Serving& serving) {
  Operation made;
  made.summary = "Continues the text of the path by Hugging Face's generation parameters";
  made.rest = "text";
  for (auto& property : generate_properties(serving))
    if (property.schema != kNull) made.query.push_back(std::move(property));
  made.query.push_back({"max_tokens", schema::integer(1, INT64_MAX, "The same as max_new_tokens")});
  made.reply = schema::object({{"inputs", kText, true}, {"outputs", schema::any({kText, schema::list(kText)}), true}});
  made.refusals = kModelRefusals;
  return made;
}

}  // namespace pm::server
