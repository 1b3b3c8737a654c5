// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/sparse_embeddings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// The weights of a text by token, those above 0.
using Weights = std::map<int64_t, float>;

/// Pools scores [tokens, vocabulary] of one text.
Weights pool_scores(const SpladePooling& splade, std::span<const float> scores, size_t vocabulary) {
  std::vector<float> pooled(vocabulary);
  for (size_t t = 0; t < scores.size() / vocabulary; ++t) {
    for (size_t i = 0; i < vocabulary; ++i) {
      const float score = scores[t * vocabulary + i];
      if (!(score > 0)) continue;
      float weight = std::log1p(score);
      if (splade.twice) weight = std::log1p(weight);
      pooled[i] = splade.sums ? pooled[i] + weight : std::max(pooled[i], weight);
    }
  }
  Weights weights;
  for (size_t i = 0; i < vocabulary; ++i)
    if (pooled[i] > 0) weights[static_cast<int64_t>(i)] = pooled[i];
  return weights;
}

/// Weighs the tokens of one text by their states [tokens, width]. Special tokens have no weight.
Weights weigh_tokens(const ServerContext& context, const TokenWeights& head, std::span<const float> states,
                     const Row& row) {
  const SpecialIds special = context.tokenizer->special();
  std::set<int64_t> without;
  for (const auto& id : {special.bos, special.eos, special.cls, special.sep, special.pad, special.unk})
    if (id) without.insert(*id);
  Weights weights;
  const size_t width = head.weight.size();
  for (size_t t = 0; t < row.size(); ++t) {
    double weight = head.bias;
    for (size_t i = 0; i < width; ++i) weight += static_cast<double>(head.weight[i]) * states[t * width + i];
    if (!(weight > 0) || without.contains(row[t].id)) continue;
    float& most = weights[row[t].id];
    most = std::max(most, static_cast<float>(weight));
  }
  return weights;
}

/// Returns the weights of some texts. Scores of the whole vocabulary are computed for one text at a time, which bounds
/// their memory.
std::vector<Weights> weigh(const ServerContext& context, const RoutedRequest& call, const std::vector<Row>& rows,
                           const std::shared_ptr<const engine::Adapter>& adapter) {
  const SparseEmbedding& sparse = context.capabilities.sparse;
  const auto starts = split_into_batches(rows, sparse.splade ? 1 : context.max_batch_tokens);
  std::vector<Weights> all;
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    std::vector<ForwardBatch> batch;
    batch.push_back(
        {pad_rows(context, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {sparse.output}});
    batch[0].adapter = adapter;
    const auto outputs = run_forward_batches(context, call, std::move(batch));
    const auto& values = float_values(outputs[0], sparse.output, 3);
    const auto& shape = outputs[0].at(sparse.output).shape;
    const auto length = static_cast<size_t>(shape[1]), width = static_cast<size_t>(shape[2]);
    for (size_t r = starts[b]; r < starts[b + 1]; ++r) {
      const auto of_row =
          std::span(values).subspan((r - starts[b]) * length * width, std::min(length, rows[r].size()) * width);
      all.push_back(sparse.splade ? pool_scores(*sparse.splade, of_row, width)
                                  : weigh_tokens(context, *sparse.weights, of_row, rows[r]));
    }
  }
  return all;
}

}  // namespace

Operation describe_embed_sparse(const ServerContext& context) {
  const json entry = schema::object(
      {{"index", schema::integer(0, INT64_MAX, "Token id"), true}, {"value", schema::or_null(schema::real()), true}});
  return task_operation(context, "Sparse embeddings, compatible with text-embeddings-inference",
                        {{"inputs", texts_schema("", max_inputs), true}}, schema::list(schema::list(entry)),
                        {{"inputs", {"A cat sat.", "Dogs run."}}});
}

http::Response embed_sparse(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  Fields fields(object);
  std::shared_ptr<const engine::Adapter> adapter;
  const bool truncate = read_common_fields(fields, context, &adapter);
  const json& inputs = require_field(fields, "inputs", "a text or an array of texts");
  fields.refuse_others();
  if (!context.capabilities.sparse.refusal.empty())
    throw ApiError(400, "not_served", context.capabilities.sparse.refusal);
  bool single = false;
  std::vector<Row> rows;
  for (const auto& text : parse_texts(inputs, "inputs", single))
    rows.push_back(
        encode_row(context, text, truncate, single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]"));
  json reply = json::array();
  for (const Weights& weights : weigh(context, call, rows, adapter)) {
    json list = json::array();
    for (const auto& [id, weight] : weights) list.push_back({{"index", id}, {"value", weight}});
    reply.push_back(std::move(list));
  }
  return json_response(reply);
}

}  // namespace pm::server
