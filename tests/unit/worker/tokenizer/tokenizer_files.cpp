// SPDX-License-Identifier: Apache-2.0
// Writes the tokenizer.json files of the tokenizer tests.
#include "tests/unit/worker/tokenizer/tokenizer_files.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace pm::test {

using nlohmann::json;

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tokenizer-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

void write_tokenizer(const std::filesystem::path& folder, const std::string& text) {
  std::ofstream(folder / "tokenizer.json") << text;
}

namespace {

std::string utf8(int code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// GPT-2's bytes_to_unicode: printable bytes stand for themselves, the others for 256, 257, ...
json byte_alphabet() {
  json vocab = json::object();
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocab[utf8(printable ? byte : next++)] = byte;
  }
  return vocab;
}

json special_token(int id, const std::string& text) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

namespace {

std::string byte_level(const json& vocab) {
  const json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", {special_token(256, "<|end|>")}},
              {"normalizer", nullptr},
              {"pre_tokenizer", level},
              {"post_processor", nullptr},
              {"decoder", level},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"vocab", vocab},
                {"merges", json::array()}}}}
      .dump();
}

}  // namespace

std::string byte_level_json() { return byte_level(byte_alphabet()); }

std::string large_byte_level_json(size_t size) {
  json vocab = byte_alphabet();
  // a model's tokens: words of one to ten letters, half of them behind a space, numbers and runs of punctuation
  const std::string letters = "etaoinshrdlucmfwypvbgkjqxzETAOIN", signs = "{}[]\",:.,-_()";
  uint64_t state = 1;
  const auto draw = [&](size_t bound) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<size_t>(state >> 33) % bound;
  };
  for (size_t id = 257; vocab.size() + 1 < size;) {
    std::string token = draw(2) == 0 ? "\u0120" : "";
    const std::string& from = draw(12) == 0 ? signs : draw(12) == 0 ? std::string("0123456789") : letters;
    for (size_t i = 0, count = 1 + draw(10); i < count; ++i) token += from[draw(from.size())];
    if (!vocab.contains(token)) vocab[token] = id++;
  }
  return byte_level(vocab);
}

std::string byte_fallback_json() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[name] = byte;
  }
  vocab["\u2581a"] = 256;
  vocab["\u2581b"] = 257;
  vocab["b"] = 258;
  const json decoder = {{"type", "Sequence"},
                        {"decoders",
                         {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}},
                          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", nullptr},
              {"post_processor", nullptr},
              {"decoder", decoder},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", true},
                {"vocab", vocab},
                {"merges", json::array()}}}}
      .dump();
}

std::string word_level_json() {
  const json first = {{"SpecialToken", {{"id", "[CLS]"}, {"type_id", 0}}}},
             text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json post = {{"type", "TemplateProcessing"},
                     {"single", {first, text}},
                     {"pair", {text, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
                     {"special_tokens", {{"[CLS]", {{"id", "[CLS]"}, {"ids", {3}}, {"tokens", {"[CLS]"}}}}}}};
  return json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", {special_token(3, "[CLS]")}},
              {"normalizer", nullptr},
              {"pre_tokenizer", {{"type", "Whitespace"}}},
              {"post_processor", post},
              {"decoder", nullptr},
              {"model",
               {{"type", "WordLevel"},
                {"vocab", {{"hello", 0}, {"world", 1}, {"[UNK]", 2}, {"[CLS]", 3}}},
                {"unk_token", "[UNK]"}}}}
      .dump();
}

}  // namespace pm::test
