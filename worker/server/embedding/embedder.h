// SPDX-License-Identifier: Apache-2.0
// Computes embeddings of texts and images.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"

namespace pm::server {

/// The tokens of a text, of which the first `prompt_tokens` belong to its prompt.
struct EmbeddableText {
  Row tokens;
  size_t prompt_tokens = 0;
};
/// One input: a text, or the pixel_values of one image.
using Embeddable = std::variant<EmbeddableText, Array>;

/// The model's own way to embed, adjusted by a request's "pooling" (mean, cls, last, max, pooler) and "normalize".
struct EmbeddingOptions {
  Embedding text, image;
  std::shared_ptr<const engine::Adapter> adapter = {};  ///< nullptr: the base model
};
/// Reads "pooling" and "normalize". Throws ApiError 400 for a pooling that this model does not support.
EmbeddingOptions read_embedding_options(Fields&, const ServerContext&);
/// Reads "prompt", "prompt_name" and "input_type" and returns the prefix of the request's texts. Throws ApiError 400
/// for a name that the checkpoint does not have, or for two of the fields.
std::string read_prompt(Fields&, const ServerContext&);
/// Returns the prompt that the field "prompt_name" names. Throws ApiError 400 for a name that the checkpoint does not
/// have.
const std::string& named_prompt(const Prompts&, const std::string& name);

/// Returns the schemas of the fields that these functions read, with the values that this model supports.
schema::Properties embedding_schema(const ServerContext&);
schema::Properties prompt_schema(const ServerContext&);

/// Encodes a text as sentence-transformers does: white space is stripped where the checkpoint demands it, and `prompt`
/// is prepended.
EmbeddableText embeddable_text(const ServerContext&, const std::string& prompt, const std::string& text, bool truncate,
                               const std::string& field);

/// Returns one vector per item, in order. Throws ApiError 400 for an item of a kind that the model does not embed.
std::vector<std::vector<float>> embed(const ServerContext&, const RoutedRequest&, const EmbeddingOptions&,
                                      const std::vector<Embeddable>& items);

}  // namespace pm::server
