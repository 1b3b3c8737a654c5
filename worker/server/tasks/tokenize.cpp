// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/tokenize.h"

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

const Tokenizer& found(const Tokenizer* tokenizer) {
  if (!tokenizer)
    throw ApiError(400, "no_tokenizer", "this model has no tokenizer; it takes and returns token ids only");
  return *tokenizer;
}

}  // namespace

Operation describe_tokenize(const ServerContext& context) {
  const json count = schema::integer(0, INT64_MAX), strings = schema::list(schema::text());
  return task_operation(
      context, "Token ids of a text",
      {{"prompt", schema::text("Text to tokenize"), true},
       {"add_special_tokens", schema::boolean("Add the special tokens of the checkpoint; default true")},
       {"return_token_strs", schema::boolean("Return the tokens as strings too")}},
      schema::object({{"tokens", schema::list(count), true},
                      {"count", count, true},
                      {"max_model_len", count, true},
                      {"token_strs", schema::or_null(strings), true}}),
      {{"prompt", "A cat sat."}});
}

http::Response tokenize(const ServerContext& context, const RoutedRequest& call) {
  const json object = parse_route_body(context, call);
  const Tokenizer& tokenizer = found(context.prompt_tokenizer);
  Fields fields(object);
  std::shared_ptr<const engine::Adapter> any;  // adapters have the tokenizer of their base
  read_common_fields(fields, context, &any);   // the length of the text is not limited, so "truncate" has no effect
  const json& prompt = require_field(fields, "prompt", "a text");
  if (!prompt.is_string()) throw bad_field("prompt", json_excerpt(prompt), "a text");
  const bool special = fields.boolean("add_special_tokens").value_or(true);
  const bool spelled = fields.boolean("return_token_strs").value_or(false);
  fields.refuse_others();
  const auto ids = tokenizer.encode(prompt.get_ref<const std::string&>(), special);
  json strings;
  if (spelled) {
    strings = json::array();
    for (int32_t id : ids) strings.push_back(tokenizer.id_to_token(id));
  }
  return json_response(
      {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", max_input_tokens(context)}, {"token_strs", strings}});
}

Operation describe_detokenize(const ServerContext& context) {
  return task_operation(context, "Text of token ids, special tokens included; ids outside the vocabulary are skipped",
                        {{"tokens", schema::list(schema::integer(0, INT32_MAX)), true}},
                        schema::object({{"prompt", schema::text(), true}}), {{"tokens", {1, 2, 3}}});
}

http::Response detokenize(const ServerContext& context, const RoutedRequest& call) {
  const json object = parse_route_body(context, call);
  const Tokenizer& tokenizer = found(context.tokenizer);
  Fields fields(object);
  std::shared_ptr<const engine::Adapter> any;
  read_common_fields(fields, context, &any);
  const std::string allowed = "an array of token ids";
  const json& tokens = require_field(fields, "tokens", allowed);
  fields.refuse_others();
  if (!tokens.is_array()) throw bad_field("tokens", json_excerpt(tokens), allowed);
  std::vector<int32_t> ids;
  for (const json& value : tokens) {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX)
      throw bad_field("tokens[" + std::to_string(ids.size()) + "]", json_excerpt(value),
                      "a token id, an integer from 0");
    ids.push_back(value);
  }
  return json_response({{"prompt", tokenizer.decode(ids, false)}});
}

}  // namespace pm::server
