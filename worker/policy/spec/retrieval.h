// SPDX-License-Identifier: Apache-2.0
// How a model that retrieves passages generates from them (RAG; Lewis et al. 2020).
#pragma once
#include <cstdint>
#include <string>

#include "worker/policy/spec/enums.h"

namespace pm::policy {

/// Over what the passages are marginalised: each token's probability, or that of the whole answer.
enum class Marginal : uint8_t { Token, Sequence };
template <>
struct Words<Marginal> {
  static constexpr std::array<std::string_view, 2> all{"token", "sequence"};
};

/// Retrieval by the inner product of the question's vector with the embeddings of an index. The generator reads each
/// passage with the question: prefix, title, title_sep, text, doc_sep, question.
struct Retrieval {
  Marginal marginal = Marginal::Token;
  int64_t passages = 0;    ///< of the index
  int64_t docs = 5;        ///< passages of a question
  int64_t max_length = 0;  ///< tokens of a passage with the question; longer ones are cut
  std::string prefix, title_sep, doc_sep;
  bool deduplicate = true;  ///< Sequence: equal candidates count once
  int64_t bos = -1;         ///< Sequence: not scored where every candidate begins with it; -1: none
  int64_t pad = -1;         ///< Sequence: not scored; -1: none
};

}  // namespace pm::policy
