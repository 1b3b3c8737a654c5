// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/rerank.h"

#include <algorithm>
#include <iterator>

#include "worker/server/embedding/logit_pair_scores.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

struct RerankRequest {
  PairRequest pairs;
  size_t top_n = SIZE_MAX;
  bool with_documents = false;
};

std::string parse_document(const json& value, const std::string& field) {
  if (!value.is_object()) return parse_text(value, field);
  Fields fields(value, field);
  const json* text = fields.find("text");
  fields.refuse_others();
  if (!text) throw bad_field(field, json_excerpt(value), "a text or {\"text\": text}");
  return parse_text(*text, field + ".text");
}

RerankRequest parse_request(const json& object, const ServerContext& context) {
  const std::string allowed = "an array of texts";
  Fields fields(object);
  RerankRequest request;
  request.pairs.truncate = read_common_fields(fields, context, &request.pairs.adapter);
  request.pairs.queries = {{parse_text(require_field(fields, "query", "a text"), "query"), "query"}};
  const json& documents = require_field(fields, "documents", allowed);
  request.top_n = static_cast<size_t>(fields.integer("top_n", 1, INT32_MAX).value_or(INT32_MAX));
  request.with_documents = fields.boolean("return_documents").value_or(false);
  request.pairs.instruction = read_instruction(fields, context);
  fields.refuse_others();
  if (!documents.is_array() || documents.empty()) throw bad_field("documents", json_excerpt(documents), allowed);
  if (documents.size() > max_inputs)
    throw ApiError(413, "too_many_inputs",
                   "documents has " + std::to_string(documents.size()) + " items; at most " +
                       std::to_string(max_inputs) + " in one request",
                   "documents");
  for (const json& one : documents) {
    const std::string field = "documents[" + std::to_string(request.pairs.documents.size()) + "]";
    request.pairs.documents.push_back({parse_document(one, field), field});
  }
  return request;
}

}  // namespace

Operation describe_rerank(const ServerContext& context) {
  const json text = schema::text("", 1), count = schema::integer(0, INT64_MAX);
  const json document = schema::any({text, schema::object({{"text", text, true}})});
  const json shown_document = schema::object({{"text", schema::text(), true}});
  json result = schema::object({{"index", schema::integer(0, INT64_MAX, "Index of the document in the request"), true},
                                {"relevance_score", schema::or_null(schema::real()), true}});
  result["properties"]["document"] = shown_document;
  schema::Properties own{{"query", text, true},
                         {"documents", schema::list(document, 1, max_inputs), true},
                         {"top_n", schema::integer(1, INT32_MAX, "Number of results; default all")},
                         {"return_documents", schema::boolean("Add the texts to the results; default false")}};
  std::ranges::move(instruction_schema(context), std::back_inserter(own));
  return task_operation(
      context, "Documents ranked by relevance to a query, best first", std::move(own),
      schema::object(
          {{"id", schema::text(), true},
           {"model", schema::text(), true},
           {"results", schema::list(result), true},
           {"usage", schema::object({{"prompt_tokens", count, true}, {"total_tokens", count, true}}), true}}),
      {{"query", "Where does the cat sit?"}, {"documents", {"The cat sat on the mat.", "It rains."}}});
}

http::Response rerank(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  const RerankRequest request = parse_request(object, context);
  const PairScores ranking = score_pairs(context, call, request.pairs);
  json results = json::array();
  for (size_t i : top_indices(ranking.scores, request.top_n)) {
    json result = {{"index", i}, {"relevance_score", ranking.scores[i]}};
    if (request.with_documents) result["document"] = {{"text", request.pairs.documents[i].text}};
    results.push_back(std::move(result));
  }
  return json_response({{"id", "rerank-" + call.request.id},
                        {"model", request.pairs.adapter ? request.pairs.adapter->name : context.names.first()},
                        {"results", results},
                        {"usage", {{"prompt_tokens", ranking.tokens}, {"total_tokens", ranking.tokens}}}});
}

}  // namespace pm::server
