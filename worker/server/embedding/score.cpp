// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/score.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>

#include "worker/server/embedding/logit_pair_scores.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// The names of both sides in the versions of vLLM's form.
constexpr std::array<std::array<const char*, 2>, 3> spellings{
    {{"queries", "documents"}, {"text_1", "text_2"}, {"data_1", "data_2"}}};

std::vector<NamedText> parse_side(const json& value, const std::string& field) {
  bool single = false;
  std::vector<NamedText> side;
  for (std::string& text : parse_texts(value, field, single))
    side.push_back({std::move(text), single ? field : field + "[" + std::to_string(side.size()) + "]"});
  return side;
}

PairRequest parse_request(const json& object, const ServerContext& context) {
  Fields fields(object);
  PairRequest request;
  request.truncate = read_common_fields(fields, context, &request.adapter);
  const std::array<const char*, 2>* names = nullptr;
  for (const auto& spelling : spellings) {
    const json *first = fields.find(spelling[0]), *second = fields.find(spelling[1]);
    if (!first && !second) continue;
    if (names || !first || !second)
      throw ApiError(400, names ? "invalid_value" : "missing_field",
                     names ? std::string(spelling[0]) + " and " + (*names)[0] + " are given; send one pair of fields"
                           : std::string(first ? spelling[1] : spelling[0]) + " is missing; allowed: texts",
                     first ? spelling[1] : spelling[0]);
    names = &spelling;
    request.queries = parse_side(*first, spelling[0]);
    request.documents = parse_side(*second, spelling[1]);
  }
  if (!names)
    throw ApiError(400, "missing_field", "queries and documents are missing; allowed: texts or arrays of texts",
                   "queries");
  request.instruction = read_instruction(fields, context);
  fields.refuse_others();
  if (request.queries.size() != 1 && request.queries.size() != request.documents.size())
    throw ApiError(400, "invalid_value",
                   std::string((*names)[0]) + " has " + std::to_string(request.queries.size()) + " texts and " +
                       (*names)[1] + " " + std::to_string(request.documents.size()) +
                       "; allowed: one text for all, or as many as there are of the other",
                   (*names)[1]);
  return request;
}

}  // namespace

Operation describe_score(const ServerContext& context) {
  schema::Properties own;
  std::vector<std::vector<std::string>> required;
  for (const auto& spelling : spellings) {
    for (const char* name : spelling) own.push_back({name, texts_schema("", max_inputs)});
    required.push_back({spelling[0], spelling[1]});
  }
  std::ranges::move(instruction_schema(context), std::back_inserter(own));
  const json count = schema::integer(0, INT64_MAX);
  const json entry = schema::object({{"index", count, true},
                                     {"object", schema::constant("score"), true},
                                     {"score", schema::or_null(schema::real()), true}});
  return task_operation(
      context, "Scores of pairs of texts, compatible with vLLM's API", std::move(own),
      schema::object(
          {{"id", schema::text(), true},
           {"object", schema::constant("list"), true},
           {"created", count, true},
           {"model", schema::text(), true},
           {"data", schema::list(entry), true},
           {"usage", schema::object({{"prompt_tokens", count, true}, {"total_tokens", count, true}}), true}}),
      {{"queries", "Where does the cat sit?"}, {"documents", {"The cat sat on the mat.", "It rains."}}}, required);
}

http::Response score(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const PairRequest request = parse_request(parse_route_body(context, call), context);
  const PairScores scored = score_pairs(context, call, request);
  json data = json::array();
  for (double one : scored.scores) data.push_back({{"index", data.size()}, {"object", "score"}, {"score", one}});
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return json_response({{"id", "score-" + call.request.id},
                        {"object", "list"},
                        {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
                        {"model", request.adapter ? request.adapter->name : context.names.first()},
                        {"data", data},
                        {"usage", {{"prompt_tokens", scored.tokens}, {"total_tokens", scored.tokens}}}});
}

}  // namespace pm::server
