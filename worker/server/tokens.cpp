// POST /tokenize and /detokenize, with vLLM's fields. See routes.h.
#include "worker/server/api_error.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

const Tokenizer& tokenizer_of(const Serving& serving) {
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model has no tokenizer; it takes and gives token ids only");
  return *serving.tokenizer;
}

}  // namespace

Operation describe_tokenize(const Serving& serving) {
  const json count = schema::integer(0, INT64_MAX), strings = schema::list(schema::text());
  return task_operation(serving, "Token ids of a text",
                        {{"prompt", schema::text("The text"), true},
                         {"add_special_tokens", schema::boolean("With those that the checkpoint puts around a text; default true")},
                         {"return_token_strs", schema::boolean("Also how the vocabulary spells them")}},
                        schema::object({{"tokens", schema::list(count), true}, {"count", count, true}, {"max_model_len", count, true}, {"token_strs", schema::or_null(strings), true}}),
                        {{"prompt", "A cat sat."}});
}

http::Response tokenize(const Serving& serving, const Call& call) {
  const json object = task_body(serving, call);
  const Tokenizer& tokenizer = tokenizer_of(serving);
  Fields fields(object);
  common_fields(fields, serving);   // nothing is too long here
  const json& prompt = required(fields, "prompt", "a text");
  if (!prompt.is_string()) throw bad_field("prompt", shown(prompt), "a text");
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  const bool spelled = fields.boolean("return_token_strs").value_or(false);
  fields.refuse_others();
  const auto ids = tokenizer.encode(prompt.get_ref<const std::string&>(), special);
  json strings;
  if (spelled) {
    strings = json::array();
    for (int32_t id : ids) strings.push_back(tokenizer.spelling(id));
  }
  return json_response({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", longest(serving)}, {"token_strs", strings}});
}

Operation describe_detokenize(const Serving& serving) {
  return task_operation(serving, "Text of token ids, special tokens included; ids outside the vocabulary give nothing",
                        {{"tokens", schema::list(schema::integer(0, INT32_MAX)), true}}, schema::object({{"prompt", schema::text(), true}}), {{"tokens", {1, 2, 3}}});
}

http::Response detokenize(const Serving& serving, const Call& call) {
  const json object = task_body(serving, call);
  const Tokenizer& tokenizer = tokenizer_of(serving);
  Fields fields(object);
  common_fields(fields, serving);
  const std::string allowed = "an array of token ids";
  const json& tokens = required(fields, "tokens", allowed);
  fields.refuse_others();
  if (!tokens.is_array()) throw bad_field("tokens", shown(tokens), allowed);
  std::vector<int32_t> ids;
  for (const json& value : tokens) {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX) throw bad_field("tokens[" + std::to_string(ids.size()) + "]", shown(value), "a token id, an integer from 0");
    ids.push_back(value);
  }
  return json_response({{"prompt", tokenizer.decode(ids, false)}});
}

}  // namespace pm::server
