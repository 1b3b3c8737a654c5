// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/fill_mask.h"

#include <set>

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr int64_t max_top_k = 1000;

/// Returns the ids of the target words. A word that is not a token counts as its first token, as in transformers'
/// pipeline.
std::vector<int32_t> parse_targets(const ServerContext& context, const json& value) {
  bool single = false;
  std::set<int32_t> ids;
  for (const auto& target : parse_texts(value, "targets", single)) {
    if (const auto id = context.tokenizer->token_to_id(target)) {
      ids.insert(*id);
      continue;
    }
    const auto pieces = context.tokenizer->encode(target, false);
    if (!pieces.empty()) ids.insert(pieces[0]);
  }
  if (ids.empty()) throw bad_field("targets", json_excerpt(value), "words that have at least one token");
  return {ids.begin(), ids.end()};
}

struct FillMaskOptions {
  size_t top_k = 5;
  std::vector<int32_t> targets;  ///< empty: the whole vocabulary
};

/// Returns the most probable tokens for the mask at index `at`. `single` is true when the text has one mask.
json predict(const ServerContext& context, const Row& row, size_t at, std::span<const float> logits,
             const FillMaskOptions& options, bool single) {
  auto scores = softmax(logits);
  if (!options.targets.empty()) {
    std::vector<double> some;
    for (int32_t id : options.targets)
      some.push_back(static_cast<size_t>(id) < scores.size() ? scores[static_cast<size_t>(id)] : 0);
    scores = std::move(some);
  }
  std::vector<int32_t> ids;
  for (const Token& token : row) ids.push_back(token.id);
  const auto pad = context.tokenizer->special().pad;
  json all = json::array();
  for (size_t i : top_indices(scores, options.top_k)) {
    const int32_t id = options.targets.empty() ? static_cast<int32_t>(i) : options.targets[i];
    std::vector<int32_t> filled = ids;
    filled[at] = id;
    if (pad) std::erase(filled, *pad);
    // with several masks the other mask tokens stay in the text
    all.push_back({{"score", scores[i]},
                   {"token", id},
                   {"token_str", context.tokenizer->decode(std::span(&id, 1), false)},
                   {"sequence", context.tokenizer->decode(filled, single)}});
  }
  return all;
}

std::vector<size_t> mask_positions(const Row& row, int32_t mask) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i].id == mask) positions.push_back(i);
  return positions;
}

}  // namespace

Operation describe_fill_mask(const ServerContext& context) {
  const json guess = schema::object({{"score", schema::or_null(schema::real()), true},
                                     {"token", schema::integer(0, INT64_MAX), true},
                                     {"token_str", schema::text(), true},
                                     {"sequence", schema::text(), true}});
  const json guesses = schema::list(guess), of_text = schema::any({guesses, schema::list(guesses)},
                                                                  "A text with several masks gets one list per mask");
  std::string mask = "[MASK]";
  if (context.tokenizer && context.tokenizer->special().mask)
    mask = context.tokenizer->id_to_token(*context.tokenizer->special().mask);
  return task_operation(context, "Predictions for the mask tokens of a text",
                        {{"inputs", texts_schema("Text with the tokenizer's mask token"), true},
                         {"top_k", schema::integer(1, max_top_k, "Number of predictions; default 5")},
                         {"targets", texts_schema("Restrict predictions to these words")}},
                        one_or_list(of_text), {{"inputs", "the " + mask}});
}

http::Response fill_mask(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  if (!context.tokenizer)
    throw ApiError(400, "no_tokenizer", "this model has no tokenizer; send input_ids to POST /forward");
  const auto mask = context.tokenizer->special().mask;
  if (!mask)
    throw ApiError(400, "no_mask_token", "this model's tokenizer has no mask_token; send input_ids to POST /forward");
  Fields fields(object);
  const bool truncate = read_common_fields(fields, context);
  bool single = false;
  const auto texts =
      parse_texts(require_field(fields, "inputs", "a text with the mask token, or an array of such"), "inputs", single);
  FillMaskOptions options;
  options.top_k = static_cast<size_t>(fields.integer("top_k", 1, max_top_k).value_or(5));
  if (const json* targets = fields.find("targets")) options.targets = parse_targets(context, *targets);
  fields.refuse_others();

  std::vector<Row> rows;
  for (const auto& text : texts) {
    const std::string field = single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]";
    rows.push_back(encode_row(context, text, truncate, field));
    if (mask_positions(rows.back(), *mask).empty())
      throw ApiError(400, "no_mask",
                     field + " has no mask token; write " + context.tokenizer->id_to_token(*mask) +
                         " in the place of the missing word",
                     field);
  }
  const std::string& output = context.capabilities.vocabulary_scores;
  json all = json::array();
  for (const Row& row : rows) {  // one row per forward pass bounds the memory of logits over the whole vocabulary
    std::vector<ForwardBatch> batches;
    batches.push_back({pad_rows(context, std::span(&row, 1)), {output}});
    const auto outputs = run_forward_batches(context, call, std::move(batches));
    const auto& logits = float_values(outputs[0], output, 3);
    const auto vocabulary = static_cast<size_t>(outputs[0].at(output).shape[2]);
    const auto positions = mask_positions(row, *mask);
    json found = json::array();
    for (size_t at : positions)
      found.push_back(predict(context, row, at, std::span(logits).subspan(at * vocabulary, vocabulary), options,
                              positions.size() == 1));
    all.push_back(positions.size() == 1 ? found[0] : found);
  }
  return json_response(single ? all[0] : all);
}

}  // namespace pm::server
