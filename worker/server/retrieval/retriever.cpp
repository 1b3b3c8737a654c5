// SPDX-License-Identifier: Apache-2.0
#include "worker/server/retrieval/retriever.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"

namespace pm::server {

namespace {

/// Opens a tokenizer, which has to cut texts at their end.
Tokenizer open_tokenizer(const std::filesystem::path& folder) {
  std::ifstream file(folder / "tokenizer_config.json");
  const nlohmann::json config = file ? nlohmann::json::parse(file, nullptr, false) : nlohmann::json();
  if (config.is_object() && config.value("truncation_side", nlohmann::json("right")) != "right")
    throw Error(Reason::ModelUnreadable,
                folder.string() + " has a truncation_side that is not \"right\"; passages are cut at their end only");
  return Tokenizer::open(folder);
}

std::string single_spaced(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == ' ' && i + 1 < text.size() && text[i + 1] == ' ') ++i;
  }
  return out;
}

}  // namespace

std::string context_text(const policy::Retrieval& retrieval, const checkpoint::Passage& passage,
                         const std::string& question) {
  std::string title = passage.title;
  if (title.starts_with('"')) title.erase(0, 1);
  if (title.ends_with('"')) title.pop_back();
  return single_spaced(retrieval.prefix + title + retrieval.title_sep + passage.text + retrieval.doc_sep + question);
}

Retriever::Retriever(const policy::Retrieval& retrieval, const std::filesystem::path& folder)
    : retrieval_(retrieval),
      question_(open_tokenizer(folder / question_tokenizer_folder)),
      generator_(open_tokenizer(folder / generator_tokenizer_folder)),
      passages_(checkpoint::Passages::open(folder / checkpoint::index_folder)) {
  if (passages_.size() != retrieval.passages)
    throw Error(Reason::ModelUnreadable, (folder / checkpoint::index_folder).string() + " has " +
                                             std::to_string(passages_.size()) + " passages and " +
                                             std::to_string(retrieval.passages) +
                                             " embeddings; line i of the passages belongs to row i of the embeddings");
}

std::vector<engine::RetrievedPassage> Retriever::passages(std::span<const int64_t> numbers,
                                                          std::span<const float> scores) const {
  std::vector<engine::RetrievedPassage> found;
  for (size_t i = 0; i < numbers.size(); ++i) {
    checkpoint::Passage passage = passages_.read(numbers[i]);
    found.push_back({numbers[i], scores[i], std::move(passage.title), std::move(passage.text)});
  }
  return found;
}

std::vector<std::vector<int32_t>> Retriever::contexts(std::span<const int32_t> question,
                                                      std::span<const engine::RetrievedPassage> passages) const {
  const std::string text = question_.decode(question);
  std::vector<std::vector<int32_t>> all;
  for (const engine::RetrievedPassage& passage : passages) {
    std::vector<Token> tokens =
        generator_.encode_with_offsets(context_text(retrieval_, {passage.title, passage.text}, text));
    auto too_many = static_cast<int64_t>(tokens.size()) - retrieval_.max_length;
    for (size_t i = tokens.size(); i-- > 0 && too_many > 0;) {
      if (tokens[i].sequence < 0) continue;
      tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i));
      --too_many;
    }
    std::vector<int32_t>& ids = all.emplace_back();
    for (const Token& token : tokens) ids.push_back(token.id);
  }
  return all;
}

}  // namespace pm::server
