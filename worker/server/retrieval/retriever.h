// SPDX-License-Identifier: Apache-2.0
// Makes the generator's inputs from a question and the passages that were found for it, as transformers' RagRetriever
// does in postprocess_docs().
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "worker/checkpoint/passage_index.h"
#include "worker/engine/engine.h"
#include "worker/policy/spec/model.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

/// Folders of the two tokenizers inside of the model's folder.
inline constexpr const char *question_tokenizer_folder = "question_encoder_tokenizer",
                            *generator_tokenizer_folder = "generator_tokenizer";

/// Returns the text that the generator reads: prefix, title without one quotation mark at each end, title_sep, text,
/// doc_sep, question; of every two spaces beside each other one is left.
std::string context_text(const policy::Retrieval&, const checkpoint::Passage&, const std::string& question);

/// The passages of an index and the tokenizers of question and generator.
class Retriever {
 public:
  /// Opens index/passages.jsonl and both tokenizers of the model's folder. Throws Error{ModelUnreadable}: one of them
  /// is missing or broken, or there is another number of passages than of embeddings.
  Retriever(const policy::Retrieval&, const std::filesystem::path& folder);

  const Tokenizer& question_tokenizer() const { return question_; }
  const Tokenizer& generator_tokenizer() const { return generator_; }
  /// Returns the passages with these numbers.
  std::vector<engine::RetrievedPassage> passages(std::span<const int64_t> numbers, std::span<const float> scores) const;
  /// Returns the generator's tokens for each passage with the question, at most max_length of them: the end of the text
  /// is cut, the special tokens stay.
  std::vector<std::vector<int32_t>> contexts(std::span<const int32_t> question,
                                             std::span<const engine::RetrievedPassage> passages) const;

 private:
  policy::Retrieval retrieval_;
  Tokenizer question_, generator_;
  checkpoint::Passages passages_;
};

}  // namespace pm::server
