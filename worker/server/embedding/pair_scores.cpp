// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/pair_scores.h"

#include <algorithm>

#include "worker/server/embedding/embedder.h"
#include "worker/server/embedding/logit_pair_scores.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

/// Scores the pairs with the cross-encoder.
PairScores score_jointly(const ServerContext& context, const RoutedRequest& call, const PairRequest& request) {
  const std::string& activation = context.capabilities.rank_activation;
  if (activation != "Sigmoid" && activation != "Identity")
    throw ApiError(
        400, "not_served",
        "the folder names the activation " + activation +
            ", which is not supported; supported are Sigmoid and Identity. POST /classify serves this model");
  std::vector<Row> rows;
  PairScores made;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    const NamedText& query = request.queries[request.queries.size() == 1 ? 0 : i];
    rows.push_back(encode_row(context, request.instruction + query.text, request.documents[i].text, request.truncate,
                              request.documents[i].field));
    made.tokens += rows.back().size();
  }
  const auto starts = split_into_batches(rows, context.max_batch_tokens);
  std::vector<ForwardBatch> batches;
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    batches.push_back({pad_rows(context, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {"logits"}});
  for (ForwardBatch& batch : batches) batch.adapter = request.adapter;
  for (const Arrays& outputs : run_forward_batches(context, call, std::move(batches)))
    for (float logit : float_values(outputs, "logits", 2))
      made.scores.push_back(activation == "Identity" ? logit : sigmoid(logit));
  return made;
}

PairScores score_by_similarity(const ServerContext& context, const RoutedRequest& call, const PairRequest& request) {
  const nlohmann::json none = nlohmann::json::object();
  Fields fields(none);
  const Prompts& prompts = context.capabilities.prompts;
  std::vector<Embeddable> items;
  PairScores made;
  const auto add = [&](const std::vector<NamedText>& texts, TextUse use) {
    for (const NamedText& one : texts) {
      const auto item = embeddable_text(context, prompts.of(use), one.text, request.truncate, one.field);
      made.tokens += item.tokens.size();
      items.push_back(item);
    }
  };
  add(request.queries, TextUse::Query);
  add(request.documents, TextUse::Document);
  EmbeddingOptions options = read_embedding_options(fields, context);
  options.adapter = request.adapter;
  const auto vectors = embed(context, call, options, items);
  for (size_t i = 0; i < request.documents.size(); ++i)
    made.scores.push_back(similarity_of(context.capabilities.similarity, vectors[request.queries.size() == 1 ? 0 : i],
                                        vectors[request.queries.size() + i]));
  return made;
}

}  // namespace

PairScores score_pairs(const ServerContext& context, const RoutedRequest& call, const PairRequest& request) {
  const Capabilities& can = context.capabilities;
  if (can.logit_score) {
    PairScores made = score_by_logits(context, call, request);
    if (can.rank_activation == "Sigmoid") std::ranges::transform(made.scores, made.scores.begin(), sigmoid);
    return made;
  }
  return can.task == policy::Task::Classify ? score_jointly(context, call, request)
                                            : score_by_similarity(context, call, request);
}

}  // namespace pm::server
