// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/question_answering.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/character_offsets.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t max_context_bytes = 512 << 10;

struct QuestionAnsweringRequest {
  std::string question, context;
  size_t top_k = 1, max_answer_tokens = 15, max_row_tokens = 384, stride = 128;
  bool may_be_empty = false, whole_words = true;
};

struct AnswerSpan {
  double score = 0;
  size_t start = 0, end = 0;  ///< byte offsets in the context
  std::string text;
};

constexpr int64_t max_answers = 1000, answer_token_limit = 512;

QuestionAnsweringRequest parse_request(const json& body, const ServerContext& context) {
  json object = body;
  const std::string allowed = "{\"question\": text, \"context\": text}";
  if (object.contains("inputs")) {  // Hugging Face's clients nest question and context in inputs
    const json inputs = object["inputs"];
    object.erase("inputs");
    if (!inputs.is_object() && !inputs.is_null()) throw bad_field("inputs", json_excerpt(inputs), allowed);
    for (const auto& [name, value] : inputs.items()) object[name] = value;
  }
  Fields fields(object);
  read_common_fields(fields, context);  // "truncate" has no effect: a long context is split into windows
  QuestionAnsweringRequest request;
  request.question = parse_text(require_field(fields, "question", allowed), "question");
  request.context = parse_text(require_field(fields, "context", allowed), "context");
  if (request.context.size() > max_context_bytes)
    throw ApiError(413, "too_large",
                   "context has " + std::to_string(request.context.size()) + " bytes; at most " +
                       std::to_string(max_context_bytes) + " are read",
                   "context");
  request.top_k = static_cast<size_t>(fields.integer("top_k", 1, max_answers).value_or(1));
  request.max_answer_tokens = static_cast<size_t>(fields.integer("max_answer_len", 1, answer_token_limit).value_or(15));
  const int64_t max_tokens = max_input_tokens(context);
  request.max_row_tokens =
      static_cast<size_t>(std::min(fields.integer("max_seq_len", 1, INT32_MAX).value_or(384), max_tokens));
  request.stride =
      static_cast<size_t>(fields.integer("doc_stride", 0, INT32_MAX)
                              .value_or(std::min<int64_t>(static_cast<int64_t>(request.max_row_tokens) / 2, 128)));
  request.may_be_empty = fields.boolean("handle_impossible_answer").value_or(false);
  request.whole_words = fields.boolean("align_to_words").value_or(true);
  fields.find("inputs");  // merged above
  fields.refuse_others();
  return request;
}

/// Returns one row per window of the context, each with the question; neighbouring windows share `stride` tokens.
std::vector<Row> windows(const ServerContext& context, const QuestionAnsweringRequest& request) {
  const Row whole = context.tokenizer->encode_pair(request.question, request.context);
  const auto from_context = [](const Token& token) { return token.sequence == 1; };
  const auto first = std::find_if(whole.begin(), whole.end(), from_context);
  const auto end = std::find_if(whole.rbegin(), whole.rend(), from_context).base();
  if (first == whole.end()) throw bad_field("context", json_excerpt(request.context), "a text with at least one token");
  const auto other_tokens = whole.size() - static_cast<size_t>(end - first);
  if (other_tokens >= request.max_row_tokens)
    throw ApiError(413, "context_length_exceeded",
                   "the question and the special tokens take " + std::to_string(other_tokens) + " tokens of " +
                       std::to_string(request.max_row_tokens) +
                       ", which leaves none for the context; shorten the question",
                   "question");
  const size_t capacity = request.max_row_tokens - other_tokens, tokens = whole.size() - other_tokens;
  if (tokens > capacity && request.stride >= capacity)
    throw bad_field("doc_stride", std::to_string(request.stride),
                    "an integer below " + std::to_string(capacity) + ", the tokens of the context in one window");
  std::vector<Row> rows;
  for (size_t at = 0;; at += capacity - request.stride) {
    const size_t stop = std::min(at + capacity, tokens);
    Row row(whole.begin(), first);
    row.insert(row.end(), first + static_cast<ptrdiff_t>(at), first + static_cast<ptrdiff_t>(stop));
    row.insert(row.end(), end, whole.end());
    rows.push_back(std::move(row));
    if (stop == tokens) return rows;
  }
}

/// Returns the probability of each token of a window to be the first (or last) token of the answer. Only tokens of the
/// context and the class token take part.
std::vector<double> probabilities(const Row& row, std::span<const float> logits, std::optional<int32_t> cls) {
  std::vector<float> context_logits(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(row.size()));
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i].sequence != 1 && row[i].id != cls) context_logits[i] = -10000;
  return softmax(context_logits);
}

/// Returns the bytes of the context from token `s` to token `e`, widened to whole words of this window.
AnswerSpan make_span(const Row& row, size_t s, size_t e, const QuestionAnsweringRequest& request) {
  AnswerSpan answer{.start = row[s].begin, .end = row[e].end};
  if (request.whole_words && row[s].word >= 0 && row[e].word >= 0) {
    for (const Token& token : row) {
      if (token.sequence != 1) continue;
      if (token.word == row[s].word) answer.start = std::min(answer.start, token.begin);
      if (token.word == row[e].word) answer.end = std::max(answer.end, token.end);
    }
  }
  answer.text = request.context.substr(answer.start, answer.end > answer.start ? answer.end - answer.start : 0);
  return answer;
}

/// Adds the best spans of one window to `answers`. A text that is there already has its score increased instead.
void find_spans(const Row& row, const std::vector<double>& start, const std::vector<double>& end,
                const QuestionAnsweringRequest& request, std::vector<AnswerSpan>& answers) {
  std::vector<std::pair<size_t, size_t>> spans;
  std::vector<double> scores;
  for (size_t s = 0; s < row.size(); ++s) {
    for (size_t e = s; e < std::min(row.size(), s + request.max_answer_tokens); ++e) {
      if (row[s].sequence != 1 || row[e].sequence != 1) continue;
      spans.emplace_back(s, e);
      scores.push_back(start[s] * end[e]);
    }
  }
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  for (size_t i : top_indices(scores, request.top_k)) {
    AnswerSpan answer = make_span(row, spans[i].first, spans[i].second, request);
    answer.score = scores[i];
    const auto same = std::find_if(answers.begin(), answers.end(),
                                   [&](const AnswerSpan& other) { return lower(other.text) == lower(answer.text); });
    if (same != answers.end())
      same->score += answer.score;
    else
      answers.push_back(std::move(answer));
  }
}

}  // namespace

Operation describe_question_answering(const ServerContext& context) {
  const json text = schema::text("", 1), count = schema::integer(0, INT64_MAX);
  const json found = schema::object({{"answer", schema::text(), true},
                                     {"score", schema::or_null(schema::real()), true},
                                     {"start", count, true},
                                     {"end", count, true}});
  return task_operation(
      context, "Extractive question answering: the span of a context that answers a question",
      {{"question", text},
       {"context", text},
       {"inputs",
        schema::object({{"question", text}, {"context", text}}, "Both fields, as Hugging Face's clients nest them")},
       {"top_k",
        schema::integer(1, max_answers, "Number of answers; default 1; with more than one the reply is a list")},
       {"max_answer_len", schema::integer(1, answer_token_limit, "Maximum number of tokens of an answer; default 15")},
       {"max_seq_len",
        schema::integer(1, INT32_MAX, "Tokens of a window; default 384 or the model's maximum, whichever is smaller")},
       {"doc_stride", schema::integer(0, INT32_MAX, "Tokens that two windows share; default 128")},
       {"handle_impossible_answer", schema::boolean("Allow an empty answer")},
       {"align_to_words", schema::boolean("Extend answers to whole words; default true")}},
      schema::any({found, schema::list(found)}),
      {{"question", "Where does Anna live?"}, {"context", "Anna lives in Paris."}},
      {{"question", "context"}, {"inputs"}});
}

http::Response question_answering(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  if (!context.tokenizer)
    throw ApiError(400, "no_tokenizer", "this model has no tokenizer; send input_ids to POST /forward");
  const QuestionAnsweringRequest request = parse_request(object, context);
  const auto rows = windows(context, request);
  const auto starts = split_into_batches(rows, context.max_batch_tokens);
  std::vector<ForwardBatch> batches;
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    batches.push_back({pad_rows(context, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])),
                       {"start_logits", "end_logits"}});
  const auto outputs = run_forward_batches(context, call, std::move(batches));

  const auto cls = context.tokenizer->special().cls;
  std::vector<AnswerSpan> answers;
  double no_answer_score = 1;  // the minimum over the windows of the probability of no answer
  for (size_t b = 0; b < outputs.size(); ++b) {
    const std::span start(float_values(outputs[b], "start_logits", 2)), end(float_values(outputs[b], "end_logits", 2));
    const auto length = static_cast<size_t>(outputs[b].at("start_logits").shape[1]);
    for (size_t r = starts[b]; r < starts[b + 1]; ++r) {
      auto first = probabilities(rows[r], start.subspan((r - starts[b]) * length, length), cls);
      auto last = probabilities(rows[r], end.subspan((r - starts[b]) * length, length), cls);
      no_answer_score = std::min(no_answer_score, first[0] * last[0]);
      first[0] = last[0] = 0;
      find_spans(rows[r], first, last, request, answers);
    }
  }
  if (request.may_be_empty) answers.push_back({no_answer_score, 0, 0, ""});
  std::stable_sort(answers.begin(), answers.end(),
                   [](const AnswerSpan& a, const AnswerSpan& b) { return a.score > b.score; });
  if (answers.size() > request.top_k) answers.resize(request.top_k);
  const CharacterOffsets offsets(request.context);
  json all = json::array();
  for (const AnswerSpan& answer : answers)
    all.push_back({{"answer", answer.text},
                   {"score", answer.score},
                   {"start", offsets.character(answer.start)},
                   {"end", offsets.character(answer.end)}});
  return json_response(all.size() == 1 ? all[0] : all);
}

}  // namespace pm::server
