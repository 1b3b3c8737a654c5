// POST /rerank, in the shape that Jina, Cohere and vLLM share. See routes.h.
#include "worker/server/api_error.h"
#include "worker/server/embedder.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"

namespace pm::server {
namespace {

using nlohmann::json;

struct Ask {
  std::string query;
  std::vector<std::string> documents;
  size_t top_n = SIZE_MAX;
  bool with_documents = false, truncate = false;
};

struct Ranking { std::vector<double> scores; size_t tokens = 0; };

std::string document_of(const json& value, const std::string& field) {
  if (!value.is_object()) return text_of(value, field);
  Fields fields(value, field + ".");
  const json* text = fields.find("text");
  fields.refuse_others();
  if (!text) throw bad_field(field, shown(value), "a text or {\"text\": text}");
  return text_of(*text, field + ".text");
}

Ask ask_of(const json& object, const Serving& serving) {
  const std::string allowed = "an array of texts";
  Fields fields(object);
  Ask ask;
  ask.truncate = common_fields(fields, serving);
  ask.query = text_of(required(fields, "query", "a text"), "query");
  const json& documents = required(fields, "documents", allowed);
  ask.top_n = static_cast<size_t>(fields.integer("top_n", 1, INT32_MAX).value_or(INT32_MAX));
  ask.with_documents = fields.boolean("return_documents").value_or(false);
  fields.refuse_others();
  if (!documents.is_array() || documents.empty()) throw bad_field("documents", shown(documents), allowed);
  if (documents.size() > kInputs)
    throw ApiError(413, "too_many_inputs", "documents are " + std::to_string(documents.size()) + "; at most " + std::to_string(kInputs) + " in one request", "documents");
  for (const json& one : documents) ask.documents.push_back(document_of(one, "documents[" + std::to_string(ask.documents.size()) + "]"));
  return ask;
}

std::string field_of(size_t document) { return "documents[" + std::to_string(document) + "]"; }

/// One score for each pair of query and document.
Ranking by_pairs(const Serving& serving, const Call& call, const Ask& ask) {
  std::vector<Row> rows;
  Ranking ranking;
  for (const auto& document : ask.documents) {
    rows.push_back(row_of(serving, ask.query, document, ask.truncate, field_of(rows.size())));
    ranking.tokens += rows.back().size();
  }
  const auto starts = batches(rows, kPassTokens);
  std::vector<PassInputs> passes;
  for (size_t b = 0; b + 1 < starts.size(); ++b) passes.push_back({arrays_of(serving, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {"logits"}});
  const bool raw = serving.abilities.rank_activation == "Identity";
  for (const Arrays& outputs : run_passes(serving, call, std::move(passes)))
    for (float logit : floats_of(outputs, "logits", 2)) ranking.scores.push_back(raw ? logit : sigmoid(logit));
  return ranking;
}

Ranking by_cosines(const Serving& serving, const Call& call, const Ask& ask) {
  const json none = json::object();
  Fields fields(none);
  std::vector<Embeddable> items{embedding_row(serving, ask.query, ask.truncate, "query")};
  for (const auto& document : ask.documents) items.push_back(embedding_row(serving, document, ask.truncate, field_of(items.size() - 1)));
  Ranking ranking;
  for (const auto& item : items) ranking.tokens += std::get<Row>(item).size();
  const auto vectors = embed(serving, call, embedding_choice(fields, serving), items);
  for (size_t i = 1; i < vectors.size(); ++i) ranking.scores.push_back(cosine(vectors[0], vectors[i]));
  return ranking;
}

}  // namespace

Operation describe_rerank(const Serving& serving) {
  const json text = schema::text("", 1), count = schema::integer(0, INT64_MAX);
  const json document = schema::any({text, schema::object({{"text", text, true}})});
  const json shown_document = schema::object({{"text", schema::text(), true}});
  json result = schema::object({{"index", schema::integer(0, INT64_MAX, "Of the document in the request"), true}, {"relevance_score", schema::or_null(schema::real()), true}});
  result["properties"]["document"] = shown_document;
  return task_operation(serving, "Documents by how well they answer a query, best first",
                        {{"query", text, true}, {"documents", schema::list(document, 1, kInputs), true},
                         {"top_n", schema::integer(1, INT32_MAX, "How many results; default all")},
                         {"return_documents", schema::boolean("Results carry the texts; default false")}},
                        schema::object({{"id", schema::text(), true}, {"model", schema::text(), true}, {"results", schema::list(result), true},
                                        {"usage", schema::object({{"prompt_tokens", count, true}, {"total_tokens", count, true}}), true}}),
                        {{"query", "Where does the cat sit?"}, {"documents", {"The cat sat on the mat.", "It rains."}}});
}

http::Response rerank(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  const json object = task_body(serving, call);
  const Abilities& can = serving.abilities;
  const bool pairs = can.task == "classify";
  if (pairs && can.rank_activation != "Sigmoid" && can.rank_activation != "Identity")
    throw ApiError(400, "not_served", "config.json asks for the activation " + can.rank_activation + ", which is not served; Sigmoid and Identity are, or POST /classify");
  const Ask ask = ask_of(object, serving);
  const Ranking ranking = pairs ? by_pairs(serving, call, ask) : by_cosines(serving, call, ask);
  json results = json::array();
  for (size_t i : largest(ranking.scores, ask.top_n)) {
    json result = {{"index", i}, {"relevance_score", ranking.scores[i]}};
    if (ask.with_documents) result["document"] = {{"text", ask.documents[i]}};
    results.push_back(std::move(result));
  }
  return json_response({{"id", "rerank-" + call.request.id}, {"model", serving.model}, {"results", results},
                        {"usage", {{"prompt_tokens", ranking.tokens}, {"total_tokens", ranking.tokens}}}});
}

}  // namespace pm::server
