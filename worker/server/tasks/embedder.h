// SPDX-License-Identifier: Apache-2.0
// Computes embeddings of texts and images.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"

namespace pm::server {

/// One input: a row of tokens, or the pixel_values of one image.
using Embeddable = std::variant<Row, Array>;

/// The model's own way to embed, adjusted by a request's "pooling" (mean, cls, last, max, pooler) and "normalize".
struct EmbeddingOptions {
  Embedding text, image;
};
/// Reads "pooling" and "normalize". Throws ApiError 400 for a pooling that this model does not support.
EmbeddingOptions read_embedding_options(Fields&, const ServerContext&);

/// Returns the schemas of both fields with the values that this model supports.
schema::Properties embedding_schema(const ServerContext&);

/// Encodes a text as sentence-transformers does: white space is stripped and the prompt is prepended when the
/// checkpoint demands it.
Row embedding_row(const ServerContext&, const std::string& text, bool truncate, const std::string& field);

/// Returns one vector per item, in order. Throws ApiError 400 for an item of a kind that the model does not embed.
std::vector<std::vector<float>> embed(const ServerContext&, const RoutedRequest&, const EmbeddingOptions&,
                                      const std::vector<Embeddable>& items);

}  // namespace pm::server
