// POST /question-answering: the extractive pipeline of transformers 4, which later releases dropped. See routes.h.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "worker/server/api_error.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/text_places.h"
#include "worker/server/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t kContextBytes = 512 << 10;

struct Ask {
  std::string question, context;
  size_t top_k = 1, longest_answer = 15, row = 384, stride = 128;
  bool impossible = false, whole_words = true;
};

struct Answer {
  double score = 0;
  size_t start = 0, end = 0;   ///< bytes of the context
  std::string text;
};

constexpr int64_t kAnswers = 1000, kAnswerTokens = 512;

Ask ask_of(const json& body, const Serving& serving) {
  json object = body;
  const std::string allowed = "{\"question\": text, \"context\": text}";
  if (object.contains("inputs")) {   // Hugging Face's clients put both there
    const json inputs = object["inputs"];
    object.erase("inputs");
    if (!inputs.is_object() && !inputs.is_null()) throw bad_field("inputs", shown(inputs), allowed);
    for (const auto& [name, value] : inputs.items()) object[name] = value;
  }
  Fields fields(object);
  common_fields(fields, serving);   // "truncate" changes nothing: a long context is read in windows
  Ask ask;
  ask.question = text_of(required(fields, "question", allowed), "question");
  ask.context = text_of(required(fields, "context", allowed), "context");
  if (ask.context.size() > kContextBytes) throw ApiError(413, "too_large", "context has " + std::to_string(ask.context.size()) + " bytes; at most " + std::to_string(kContextBytes) + " are read", "context");
  ask.top_k = static_cast<size_t>(fields.integer("top_k", 1, kAnswers).value_or(1));
  ask.longest_answer = static_cast<size_t>(fields.integer("max_answer_len", 1, kAnswerTokens).value_or(15));
  const int64_t most = longest(serving);
  ask.row = static_cast<size_t>(std::min(fields.integer("max_seq_len", 1, INT32_MAX).value_or(384), most));
  ask.stride = static_cast<size_t>(fields.integer("doc_stride", 0, INT32_MAX).value_or(std::min<int64_t>(static_cast<int64_t>(ask.row) / 2, 128)));
  ask.impossible = fields.boolean("handle_impossible_answer").value_or(false);
  ask.whole_words = fields.boolean("align_to_words").value_or(true);
  fields.find("inputs");   // laid over the rest
  fields.refuse_others();
  return ask;
}

/// The question with one window of the context after the other; neighbours share `stride` tokens of the context.
std::vector<Row> windows(const Serving& serving, const Ask& ask) {
  const Row whole = serving.tokenizer->pair(ask.question, ask.context);
  const auto from_context = [](const Token& token) { return token.sequence == 1; };
  const auto first = std::find_if(whole.begin(), whole.end(), from_context);
  const auto end = std::find_if(whole.rbegin(), whole.rend(), from_context).base();
  if (first == whole.end()) throw bad_field("context", shown(ask.context), "a text with at least one token");
  const auto around = whole.size() - static_cast<size_t>(end - first);
  if (around >= ask.row)
    throw ApiError(413, "context_length_exceeded", "the question takes " + std::to_string(around) + " tokens of " + std::to_string(ask.row) + ", which leaves nothing for the context; shorten it", "question");
  const size_t room = ask.row - around, tokens = whole.size() - around;
  if (tokens > room && ask.stride >= room)
    throw bad_field("doc_stride", std::to_string(ask.stride), "an integer below " + std::to_string(room) + ", the tokens of the context in one window");
  std::vector<Row> rows;
  for (size_t at = 0;; at += room - ask.stride) {
    const size_t stop = std::min(at + room, tokens);
    Row row(whole.begin(), first);
    row.insert(row.end(), first + static_cast<ptrdiff_t>(at), first + static_cast<ptrdiff_t>(stop));
    row.insert(row.end(), end, whole.end());
    rows.push_back(std::move(row));
    if (stop == tokens) return rows;
  }
}

/// Probabilities of a window's tokens to be the first (or last) of the answer: those of the context, and the class token, which is then left out.
std::vector<double> probabilities(const Row& row, std::span<const float> logits, std::optional<int32_t> cls) {
  std::vector<float> kept(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(row.size()));
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i].sequence != 1 && row[i].id != cls) kept[i] = -10000;
  return softmax(kept);
}

/// Bytes of the context from token `s` to token `e`, widened to whole words of this window.
Answer answer_of(const Row& row, size_t s, size_t e, const Ask& ask) {
  Answer answer{.start = row[s].begin, .end = row[e].end};
  if (ask.whole_words && row[s].word >= 0 && row[e].word >= 0) {
    for (const Token& token : row) {
      if (token.sequence != 1) continue;
      if (token.word == row[s].word) answer.start = std::min(answer.start, token.begin);
      if (token.word == row[e].word) answer.end = std::max(answer.end, token.end);
    }
  }
  answer.text = ask.context.substr(answer.start, answer.end > answer.start ? answer.end - answer.start : 0);
  return answer;
}

/// The best spans of one window, added to `answers`; the same text again only adds to its score.
void find_spans(const Row& row, const std::vector<double>& start, const std::vector<double>& end, const Ask& ask, std::vector<Answer>& answers) {
  std::vector<std::pair<size_t, size_t>> spans;
  std::vector<double> scores;
  for (size_t s = 0; s < row.size(); ++s) {
    for (size_t e = s; e < std::min(row.size(), s + ask.longest_answer); ++e) {
      if (row[s].sequence != 1 || row[e].sequence != 1) continue;
      spans.emplace_back(s, e);
      scores.push_back(start[s] * end[e]);
    }
  }
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  for (size_t i : largest(scores, ask.top_k)) {
    Answer answer = answer_of(row, spans[i].first, spans[i].second, ask);
    answer.score = scores[i];
    const auto same = std::find_if(answers.begin(), answers.end(), [&](const Answer& other) { return lower(other.text) == lower(answer.text); });
    if (same != answers.end()) same->score += answer.score;
    else answers.push_back(std::move(answer));
  }
}

}  // namespace

Operation describe_question_answering(const Serving& serving) {
  const json text = schema::text("", 1), count = schema::integer(0, INT64_MAX);
  const json found = schema::object({{"answer", schema::text(), true}, {"score", schema::or_null(schema::real()), true}, {"start", count, true}, {"end", count, true}});
  return task_operation(serving, "A span of a context that answers a question",
                        {{"question", text}, {"context", text}, {"inputs", schema::object({{"question", text}, {"context", text}}, "Where Hugging Face's clients put both")},
                         {"top_k", schema::integer(1, kAnswers, "How many answers; default 1, with more a list")},
                         {"max_answer_len", schema::integer(1, kAnswerTokens, "In tokens; default 15")},
                         {"max_seq_len", schema::integer(1, INT32_MAX, "Tokens of a window; default 384, or what the model takes")},
                         {"doc_stride", schema::integer(0, INT32_MAX, "Tokens that two windows share; default 128")},
                         {"handle_impossible_answer", schema::boolean("An empty answer may win")},
                         {"align_to_words", schema::boolean("Answers are whole words; default true")}},
                        schema::any({found, schema::list(found)}), {{"question", "Where does Anna live?"}, {"context", "Anna lives in Paris."}}, {{"question", "context"}, {"inputs"}});
}

http::Response question_answering(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  const json object = task_body(serving, call);
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model has no tokenizer; send input_ids to POST /forward");
  const Ask ask = ask_of(object, serving);
  const auto rows = windows(serving, ask);
  const auto starts = batches(rows, kPassTokens);
  std::vector<PassInputs> passes;
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    passes.push_back({arrays_of(serving, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {"start_logits", "end_logits"}});
  const auto outputs = run_passes(serving, call, std::move(passes));

  const auto cls = serving.tokenizer->special().cls;
  std::vector<Answer> answers;
  double nothing = 1;   // the least of all windows' probability that they hold no answer
  for (size_t b = 0; b < outputs.size(); ++b) {
    const std::span start(floats_of(outputs[b], "start_logits", 2)), end(floats_of(outputs[b], "end_logits", 2));
    const auto length = static_cast<size_t>(outputs[b].at("start_logits").shape[1]);
    for (size_t r = starts[b]; r < starts[b + 1]; ++r) {
      auto first = probabilities(rows[r], start.subspan((r - starts[b]) * length, length), cls);
      auto last = probabilities(rows[r], end.subspan((r - starts[b]) * length, length), cls);
      nothing = std::min(nothing, first[0] * last[0]);
      first[0] = last[0] = 0;
      find_spans(rows[r], first, last, ask, answers);
    }
  }
  if (ask.impossible) answers.push_back({nothing, 0, 0, ""});
  std::stable_sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) { return a.score > b.score; });
  if (answers.size() > ask.top_k) answers.resize(ask.top_k);
  const TextPlaces places(ask.context);
  json all = json::array();
  for (const Answer& answer : answers)
    all.push_back({{"answer", answer.text}, {"score", answer.score}, {"start", places.character(answer.start)}, {"end", places.character(answer.end)}});
  return json_response(all.size() == 1 ? all[0] : all);
}

}  // namespace pm::server
