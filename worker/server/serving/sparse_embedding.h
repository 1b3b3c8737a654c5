// SPDX-License-Identifier: Apache-2.0
// How a model weighs the tokens of its vocabulary for a text: learned sparse embeddings.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pm::server {

/// Scores of the vocabulary for each token: ln(1 + max(0, score)), the greatest or the sum over the tokens of the text
/// (SPLADE, https://arxiv.org/abs/2109.10086).
struct SpladePooling {
  bool sums = false;
  bool twice = false;  ///< ln(1 + x) once more, as in https://arxiv.org/abs/2504.14839
};

/// A weight for each token of the text, max(0, w state + b), of which the greatest counts where a token occurs more
/// than once (BGE-M3, https://arxiv.org/abs/2402.03216).
struct TokenWeights {
  std::vector<float> weight;
  float bias = 0;
};

/// Where neither is set, sparse embeddings are not supported.
struct SparseEmbedding {
  std::string output;  ///< output of the forward pass: [texts, tokens, vocabulary] or [texts, tokens, width]
  std::optional<SpladePooling> splade;
  std::optional<TokenWeights> weights;
  std::string refusal;  ///< why the folder's own is not supported; empty: it is

  bool exists() const { return splade || weights; }
};

/// Reads what a folder says of sparse embeddings: the module SpladePooling of sentence-transformers, or BGE-M3's
/// sparse_linear.pt. `scores` is the output with scores of the vocabulary, `states` that with `width` values per token;
/// either may be empty. Throws Error{ModelUnreadable} for files that cannot be read.
SparseEmbedding read_sparse_embedding(const std::filesystem::path& folder, const std::string& scores,
                                      const std::string& states, int64_t width);

}  // namespace pm::server
