// Texts and images turned into vectors.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "worker/server/task_request.h"
#include "worker/server/text_rows.h"

namespace pm::server {

/// What to embed: a row of tokens, or pixel_values of one image.
using Embeddable = std::variant<Row, Array>;

/// The model's way, with what a request says on top: "pooling" (mean, cls, last, max, pooler) and "normalize".
struct EmbeddingChoice {
  Embedding text, image;
};
/// Reads "pooling" and "normalize". Throws ApiError 400 for a pooling that this model has not.
EmbeddingChoice embedding_choice(Fields&, const Serving&);

/// The schemas of both, with what this model has.
schema::Properties embedding_schema(const Serving&);

/// A text as sentence-transformers prepares it: stripped and behind the prompt where the checkpoint says so.
Row embedding_row(const Serving&, const std::string& text, bool truncate, const std::string& field);

/// One vector per item, in order. Throws ApiError 400 for an item of a kind that the model does not embed.
std::vector<std::vector<float>> embed(const Serving&, const Call&, const EmbeddingChoice&, const std::vector<Embeddable>& items);

}  // namespace pm::server
