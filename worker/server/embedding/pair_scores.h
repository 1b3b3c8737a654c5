// SPDX-License-Identifier: Apache-2.0
// Scores pairs of texts with the model: by a cross-encoder, or by the similarity of their embeddings.
#pragma once
#include <string>
#include <vector>

#include "worker/server/http/openapi_schema.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// A text and its field in messages.
struct NamedText {
  std::string text, field;
};

/// Pairs of the query queries[i], or queries[0] where there is one, and documents[i].
struct PairRequest {
  std::vector<NamedText> queries, documents;
  bool truncate = false;
  std::string instruction = {};                    ///< of read_instruction()
  std::shared_ptr<const engine::Adapter> adapter;  ///< nullptr: the base model
};

struct PairScores {
  std::vector<double> scores;  ///< one per pair
  size_t tokens = 0;           ///< of all inputs of the model
};

/// Scores each pair. A cross-encoder gives the sigmoid of its logit, or the logit, as the folder says; so does a model
/// with the module LogitScore. Other models give the similarity of two embeddings, which have the checkpoint's prompts
/// of queries and documents. Throws ApiError, 400 for a model whose activation is not supported.
PairScores score_pairs(const ServerContext&, const RoutedRequest&, const PairRequest&);

}  // namespace pm::server
