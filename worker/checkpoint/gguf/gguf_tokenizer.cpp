// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "worker/checkpoint/gguf/gguf_files.h"
#include "worker/checkpoint/gguf/gguf_header.h"
#include "worker/checkpoint/passage_index.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

using nlohmann::json;

/// Keys of the metadata, and what they are called in tokenizer_config.json.
constexpr std::pair<const char*, const char*> ids[] = {{"ggml.bos_token_id", "bos_token"},
                                                       {"ggml.eos_token_id", "eos_token"},
                                                       {"ggml.unknown_token_id", "unk_token"},
                                                       {"ggml.padding_token_id", "pad_token"}};
constexpr std::pair<const char*, const char*> flags[] = {{"ggml.add_bos_token", "add_bos_token"},
                                                         {"ggml.add_eos_token", "add_eos_token"},
                                                         {"ggml.add_space_prefix", "add_prefix_space"}};

class Reader {
 public:
  explicit Reader(const RandomAccessFile& file)
      : file_(file), metadata_(read_gguf_header(file, GgufLists::All).metadata) {}

  json read(GgufVocabulary vocabulary) const {
    json tokens = list("ggml.tokens", [](const json& one) { return one.is_string(); });
    json out = {{"architecture", metadata_.value("general.architecture", json(""))},
                {"model", find("ggml.model")},
                {"pre", find("ggml.pre")},
                {"settings", settings(tokens)}};
    if (vocabulary == GgufVocabulary::Omitted) return out;
    const auto number = [](const json& one) { return one.is_number(); };
    out["scores"] = list("ggml.scores", number);
    out["token_type"] = list("ggml.token_type", [](const json& one) { return one.is_number_integer(); });
    for (const char* key : {"scores", "token_type"})
      if (!out[key].is_null() && out[key].size() != tokens.size())
        refuse(file_, "has " + std::to_string(out[key].size()) + " items in tokenizer.ggml." + key + ", expected " +
                          std::to_string(tokens.size()) + ": one for each token");
    out["merges"] = list("ggml.merges", [](const json& one) { return one.is_string(); });
    out["tokens"] = std::move(tokens);
    return out;
  }

 private:
  json find(const std::string& key) const { return metadata_.value("tokenizer." + key, json()); }

  template <typename Fits>
  json list(const std::string& key, Fits fits) const {
    json found = find(key);
    if (!found.is_null() && (!found.is_array() || !std::all_of(found.begin(), found.end(), fits)))
      refuse(file_, "has a tokenizer." + key + " that is no list of the type that it should have");
    return found;
  }

  json settings(const json& tokens) const {
    json out = json::object();
    for (const auto& [key, name] : ids) {
      const json id = find(key);
      if (id.is_null()) continue;
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= tokens.size())
        refuse(file_, std::string("has a tokenizer.") + key + " of " + id.dump() + ", the vocabulary has " +
                          std::to_string(tokens.size()) + " tokens");
      out[name] = tokens[id.get<size_t>()];
    }
    for (const auto& [key, name] : flags)
      if (const json flag = find(key); flag.is_boolean()) out[name] = flag;
    if (const json text = find("chat_template"); text.is_string()) out["chat_template"] = text;
    return out;
  }

  const RandomAccessFile& file_;
  const json metadata_;
};

}  // namespace

std::string read_gguf_tokenizer(const RandomAccessFile& file, GgufVocabulary vocabulary) {
  return Reader(file).read(vocabulary).dump();
}

std::string read_gguf_tokenizer(const std::filesystem::path& folder, GgufVocabulary vocabulary) {
  const std::vector<std::string> files = gguf_files_in(folder);
  return files.empty() ? "" : read_gguf_tokenizer(open_file(folder / files.front()), vocabulary);
}

}  // namespace pm::checkpoint
