// POST /fill-mask, as transformers' pipeline. See routes.h.
#include <set>

#include "worker/server/api_error.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr int64_t kMostRanked = 1000;

/// Ids of the words asked about; one that is no token stands for its first token, as in the pipeline.
std::vector<int32_t> targets_of(const Serving& serving, const json& value) {
  bool single = false;
  std::set<int32_t> ids;
  for (const auto& target : texts_of(value, "targets", single)) {
    if (const auto id = serving.tokenizer->id_of(target)) {
      ids.insert(*id);
      continue;
    }
    const auto pieces = serving.tokenizer->encode(target, false);
    if (!pieces.empty()) ids.insert(pieces[0]);
  }
  if (ids.empty()) throw bad_field("targets", shown(value), "words that have at least one token");
  return {ids.begin(), ids.end()};
}

struct Wish {
  size_t top_k = 5;
  std::vector<int32_t> targets;   ///< empty: the whole vocabulary
};

/// What may stand at one mask. `single`: it is the only one of the text.
json guesses(const Serving& serving, const Row& row, size_t at, std::span<const float> logits, const Wish& wish, bool single) {
  auto scores = softmax(logits);
  if (!wish.targets.empty()) {
    std::vector<double> some;
    for (int32_t id : wish.targets) some.push_back(static_cast<size_t>(id) < scores.size() ? scores[static_cast<size_t>(id)] : 0);
    scores = std::move(some);
  }
  std::vector<int32_t> ids;
  for (const Token& token : row) ids.push_back(token.id);
  const auto pad = serving.tokenizer->special().pad;
  json all = json::array();
  for (size_t i : largest(scores, wish.top_k)) {
    const int32_t id = wish.targets.empty() ? static_cast<int32_t>(i) : wish.targets[i];
    std::vector<int32_t> filled = ids;
    filled[at] = id;
    if (pad) std::erase(filled, *pad);
    // with several masks the others have to stay visible
    all.push_back({{"score", scores[i]}, {"token", id}, {"token_str", serving.tokenizer->decode(std::span(&id, 1), false)}, {"sequence", serving.tokenizer->decode(filled, single)}});
  }
  return all;
}

std::vector<size_t> masks_of(const Row& row, int32_t mask) {
  std::vector<size_t> places;
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i].id == mask) places.push_back(i);
  return places;
}

}  // namespace

Operation describe_fill_mask(const Serving& serving) {
  const json guess = schema::object({{"score", schema::or_null(schema::real()), true}, {"token", schema::integer(0, INT64_MAX), true}, {"token_str", schema::text(), true}, {"sequence", schema::text(), true}});
  const json guesses = schema::list(guess), of_text = schema::any({guesses, schema::list(guesses)}, "A text with several masks gets a list for each");
  std::string mask = "[MASK]";
  if (serving.tokenizer && serving.tokenizer->special().mask) mask = serving.tokenizer->spelling(*serving.tokenizer->special().mask);
  return task_operation(serving, "Words for the mask token of a text",
                        {{"inputs", texts_schema("With the tokenizer's mask token"), true},
                         {"top_k", schema::integer(1, kMostRanked, "How many guesses; default 5")},
                         {"targets", texts_schema("Only these words")}},
                        one_or_list(of_text), {{"inputs", "the " + mask}});
}

http::Response fill_mask(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  const json object = task_body(serving, call);
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model has no tokenizer; send input_ids to POST /forward");
  const auto mask = serving.tokenizer->special().mask;
  if (!mask) throw ApiError(400, "no_mask_token", "this model's tokenizer names no mask_token; send input_ids to POST /forward");
  Fields fields(object);
  const bool truncate = common_fields(fields, serving);
  bool single = false;
  const auto texts = texts_of(required(fields, "inputs", "a text with the mask token, or an array of such"), "inputs", single);
  Wish wish;
  wish.top_k = static_cast<size_t>(fields.integer("top_k", 1, kMostRanked).value_or(5));
  if (const json* targets = fields.find("targets")) wish.targets = targets_of(serving, *targets);
  fields.refuse_others();

  std::vector<Row> rows;
  for (const auto& text : texts) {
    const std::string field = single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]";
    rows.push_back(row_of(serving, text, truncate, field));
    if (masks_of(rows.back(), *mask).empty())
      throw ApiError(400, "no_mask", field + " has no mask token; write " + serving.tokenizer->spelling(*mask) + " where a word is to be found", field);
  }
  const std::string& output = serving.abilities.vocabulary_scores;
  json all = json::array();
  for (const Row& row : rows) {   // one by one: scores of every token over the whole vocabulary are large
    std::vector<PassInputs> passes;
    passes.push_back({arrays_of(serving, std::span(&row, 1)), {output}});
    const auto outputs = run_passes(serving, call, std::move(passes));
    const auto& logits = floats_of(outputs[0], output, 3);
    const auto vocabulary = static_cast<size_t>(outputs[0].at(output).shape[2]);
    const auto places = masks_of(row, *mask);
    json found = json::array();
    for (size_t at : places) found.push_back(guesses(serving, row, at, std::span(logits).subspan(at * vocabulary, vocabulary), wish, places.size() == 1));
    all.push_back(places.size() == 1 ? found[0] : found);
  }
  return json_response(single ? all[0] : all);
}

}  // namespace pm::server
