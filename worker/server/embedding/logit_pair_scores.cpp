// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/logit_pair_scores.h"

#include <algorithm>

#include "worker/server/embedding/embedder.h"
#include "worker/server/http/api_error.h"
#include "worker/server/serving/logit_score.h"
#include "worker/server/tasks/text_rows.h"

namespace pm::server {
namespace {

/// Scores of the vocabulary in one batch, 32 MiB: a few batches are in flight at once.
constexpr int64_t max_batch_scores = int64_t{8} << 20;

/// Turns pairs into the tokens of their prompts.
class PromptRows {
 public:
  PromptRows(const ServerContext& context, const PairRequest& request)
      : score_(*context.capabilities.logit_score),
        tokenizer_(required_tokenizer(context)),
        request_(request),
        now_(context.unix_time()),
        max_tokens_(max_input_tokens(context)) {
    if (score_.max_tokens > 0) max_tokens_ = std::min(max_tokens_, score_.max_tokens);
  }

  Row row(const NamedText& query, const NamedText& document) {
    if (!score_.messages)
      return fit_row(tokenizer_.encode_pair(request_.instruction + query.text, document.text), max_tokens_,
                     request_.truncate, document.field);
    Row row = encode(query.text, document.text);
    const auto most = static_cast<size_t>(max_tokens_);
    if (row.size() > most && request_.truncate && score_.truncates_start)
      row.erase(row.begin(), row.end() - max_tokens_);
    row = fit_row(std::move(row), max_tokens_, request_.truncate, document.field);
    if (row.size() == most && score_.messages->restores_suffix) restore_suffix(row);
    return row;
  }

 private:
  /// Returns the tokens of a prompt. The template writes the special tokens, so the tokenizer adds none.
  Row encode(const std::string& query, const std::string& document) const {
    return tokenizer_.encode_with_offsets(score_.messages->render(request_.instruction, query, document, now_), false);
  }

  /// Writes what the template writes behind the texts over the last tokens of a row that may have lost it, so that the
  /// token that is scored follows it. As sentence-transformers does it, the suffix is what the prompts of two different
  /// pairs have in common.
  void restore_suffix(Row& row) {
    if (!has_suffix_) {
      const Row one = encode("0", "0"), other = encode("1 2 3 4", "1 2 3 4");
      size_t common = 0;
      const size_t shorter = std::min(one.size(), other.size());
      while (common < shorter && one[one.size() - 1 - common].id == other[other.size() - 1 - common].id) ++common;
      if (common < shorter) suffix_.assign(one.end() - static_cast<ptrdiff_t>(common), one.end());
      has_suffix_ = true;
    }
    const size_t kept = std::min(suffix_.size(), row.size());
    std::copy_n(suffix_.end() - static_cast<ptrdiff_t>(kept), kept, row.end() - static_cast<ptrdiff_t>(kept));
  }

  const LogitScore& score_;
  const Tokenizer& tokenizer_;
  const PairRequest& request_;
  int64_t now_, max_tokens_;
  bool has_suffix_ = false;  ///< once it was needed
  Row suffix_;
};

/// Splits rows into batches that also have no more than `most` rows each; as split_into_batches().
std::vector<size_t> split_rows(const ServerContext& context, std::span<const Row> rows, size_t most) {
  std::vector<size_t> starts;
  const std::vector<size_t> by_tokens = split_into_batches(rows, context.max_batch_tokens);
  for (size_t b = 0; b + 1 < by_tokens.size(); ++b)
    for (size_t first = by_tokens[b]; first < by_tokens[b + 1]; first += most) starts.push_back(first);
  starts.push_back(rows.size());
  return starts;
}

/// Returns the prompts of a model that reads both texts of a pair together; nullptr for another one.
const Prompts* instructions_of(const ServerContext& context) {
  const Capabilities& can = context.capabilities;
  if (can.logit_score) return &can.logit_score->prompts;
  return can.task == policy::Task::Classify ? &can.prompts : nullptr;
}

}  // namespace

schema::Properties instruction_schema(const ServerContext& context) {
  const Prompts* prompts = instructions_of(context);
  if (!prompts) return {};
  std::vector<std::string> names;
  for (const auto& [name, text] : prompts->by_name) names.push_back(name);
  return {{"prompt", schema::text("Instruction before each pair, in place of the checkpoint's; may be empty")},
          {"prompt_name", names.empty() ? nlohmann::json{{"type", "null"}}
                                        : schema::one_of(names, "A prompt of config_sentence_transformers.json")}};
}

std::string read_instruction(Fields& fields, const ServerContext& context) {
  const Prompts* prompts = instructions_of(context);
  if (!prompts) return {};
  const auto prompt = fields.text("prompt"), name = fields.text("prompt_name");
  if (prompt && name)
    throw ApiError(400, "invalid_value", "prompt and prompt_name exclude each other; send one of them", "prompt");
  if (prompt) return *prompt;
  return name ? named_prompt(*prompts, *name) : prompts->standard;
}

PairScores score_by_logits(const ServerContext& context, const RoutedRequest& call, const PairRequest& request) {
  const LogitScore& score = *context.capabilities.logit_score;
  PromptRows prompts(context, request);
  std::vector<Row> rows;
  PairScores made;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    rows.push_back(prompts.row(request.queries[request.queries.size() == 1 ? 0 : i], request.documents[i]));
    made.tokens += rows.back().size();
  }
  const int64_t vocabulary = std::max<int64_t>(1, context.capabilities.scores);
  const auto starts =
      split_rows(context, rows, static_cast<size_t>(std::max<int64_t>(1, max_batch_scores / vocabulary)));
  std::vector<ForwardBatch> batches;
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    const auto some = std::span(rows).subspan(starts[b], starts[b + 1] - starts[b]);
    batches.push_back({.inputs = pad_rows(context, some), .outputs = {"last_logits"}, .adapter = request.adapter});
  }
  for (const Arrays& outputs : run_forward_batches(context, call, std::move(batches))) {
    const std::vector<float>& logits = float_values(outputs, "last_logits", 2);
    const auto width = static_cast<size_t>(outputs.at("last_logits").shape[1]);
    for (size_t row = 0; row < logits.size(); row += width) {
      const float own = logits.at(row + static_cast<size_t>(score.true_token));
      made.scores.push_back(score.false_token ? own - logits.at(row + static_cast<size_t>(*score.false_token)) : own);
    }
  }
  return made;
}

}  // namespace pm::server
