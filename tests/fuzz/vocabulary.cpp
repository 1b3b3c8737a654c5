// SPDX-License-Identifier: Apache-2.0
// Vocabularies of tokenizers that the crate reads itself. The first byte chooses: vocab.pkl, which the rest is, or the
// files of a dictionary of MeCab, which the rest changes: a file, an offset of two bytes and a value, again and again.
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "tests/fuzz/input.h"
#include "worker/tokenizer/ffi/textops.h"

namespace {

using std::filesystem::path;

constexpr uint32_t magic = 0xef718f77;

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A word's costs are those of neighbors 0 or 1.
struct Word {
  std::string text;
  uint16_t left, right;
  int16_t cost;
};

/// Returns a compiled dictionary: a double array in which each node has its own 257 units, then the words.
std::string dictionary(const std::vector<Word>& words) {
  std::map<std::string, uint32_t> bases{{"", 1}};
  for (const Word& word : words)
    for (size_t length = 1; length <= word.text.size(); ++length)
      bases.try_emplace(word.text.substr(0, length), static_cast<uint32_t>(1 + 257 * bases.size()));
  std::vector<std::array<uint32_t, 2>> units(1 + 257 * bases.size());
  units[0][0] = 1;
  for (const auto& [text, base] : bases) {
    if (text.empty()) continue;
    const uint32_t parent = bases.at(text.substr(0, text.size() - 1));
    units[parent + static_cast<uint8_t>(text.back()) + 1] = {base, parent};
  }
  std::string array, tokens;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t base = bases.at(words[i].text);
    units[base] = {static_cast<uint32_t>(-static_cast<int32_t>(i << 8 | 1) - 1), base};
    tokens += bytes_of(words[i].left) + bytes_of(words[i].right) + bytes_of(uint16_t{0}) + bytes_of(words[i].cost) +
              std::string(8, '\0');
  }
  for (const auto& unit : units) array += bytes_of(unit);
  std::string header;
  for (const uint32_t field :
       std::array<uint32_t, 10>{0, 102, 0, static_cast<uint32_t>(words.size()), 2, 2,
                                static_cast<uint32_t>(array.size()), static_cast<uint32_t>(tokens.size()), 0, 0})
    header += bytes_of(field);
  std::string charset = "utf-8";
  charset.resize(32);
  return header + charset + array + tokens;
}

/// Makes the file's size and its first field agree.
void seal(std::string& file) {
  const uint32_t size = static_cast<uint32_t>(file.size()) ^ magic;
  if (file.size() >= 4) std::memcpy(file.data(), &size, 4);
}

std::vector<std::string> files() {
  const std::string names = std::string("DEFAULT").append(25, '\0') + std::string("SPACE").append(27, '\0');
  std::string characters = bytes_of(uint32_t{2}) + names;
  for (uint32_t c = 0; c < 0xffff; ++c) {
    const bool space = c == ' ';
    characters += bytes_of((space ? 2U : 1U) | (space ? 1U : 0U) << 18 | (c % 3) << 26 | 1U << 30 | (c % 2) << 31);
  }
  std::string matrix = bytes_of(uint16_t{2}) + bytes_of(uint16_t{2});
  for (const int16_t cost : {0, 5, -7, 3}) matrix += bytes_of(cost);
  return {dictionary({{"a", 1, 1, 4}, {"ab", 0, 1, -9}, {"b", 1, 0, 2}, {"\xE3\x81\x82", 1, 1, 1}}),
          dictionary({{"DEFAULT", 1, 1, 90}, {"SPACE", 0, 0, 5}}), characters, matrix};
}

constexpr std::array<const char*, 4> file_names{"sys.dic", "unk.dic", "char.bin", "matrix.bin"};

void write(const path& file, const std::string& content) { std::ofstream(file, std::ios::binary) << content; }

struct Folder {
  Folder() : where(std::filesystem::temp_directory_path() / ("fuzz-vocabulary-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(where / "ipadic");
    write(where / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nab\n");
  }
  ~Folder() { std::filesystem::remove_all(where); }
  path where;
};

/// Opens the tokenizer of a folder and uses it. A status of 2 is a panic of the crate.
bool use(const path& folder) {
  TxTokenizer* tokenizer = nullptr;
  TxBuf why{};
  const int opened = tx_tokenizer_open(folder.c_str(), "", &tokenizer, &why);
  pm::fuzz::hold(opened != 2, "opening panics: " + pm::fuzz::text(why.ptr, why.len));
  tx_buf_free(why);
  if (!tokenizer) return false;
  for (const std::string text : {"", "a ab  b\xE3\x81\x82 x", "\xE3\x81\x82\xF0\x9F\x98\x80 1,5 <EOS>'s", "   "}) {
    TxIds ids{};
    TxBuf error{};
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    const int encoded = tx_encode(tokenizer, bytes, text.size(), true, &ids, &error);
    pm::fuzz::hold(encoded != 2, "encoding panics: " + pm::fuzz::text(error.ptr, error.len));
    TxBuf shown{};
    pm::fuzz::hold(tx_decode(tokenizer, ids.ptr, ids.len, false, &shown, &error) != 2, "decoding panics");
    tx_buf_free(shown);
    tx_buf_free(error);
    tx_ids_free(ids);
  }
  tx_tokenizer_free(tokenizer);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  static const std::vector<std::string> sound = files();
  if (size < 1) return 0;
  const path settings = folder.where / "tokenizer_config.json", pickle = folder.where / "pickled";
  if (data[0] % 2 == 0) {
    std::filesystem::create_directories(pickle);
    write(pickle / "tokenizer_config.json", R"({"tokenizer_class": "TransfoXLTokenizer"})");
    write(pickle / "vocab.pkl", pm::fuzz::text(data + 1, size - 1));
    use(pickle);
    return 0;
  }
  write(settings, R"({"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab",
                      "mecab_kwargs": {"mecab_dic": "ipadic"}})");
  std::vector<std::string> changed = sound;
  for (size_t i = 1; i + 4 <= size; i += 4) {
    std::string& file = changed[data[i] % changed.size()];
    const size_t offset = (data[i + 1] | size_t{data[i + 2]} << 8) % file.size();
    file[offset] = static_cast<char>(data[i + 3]);
  }
  for (size_t i = 0; i < changed.size(); ++i) {
    if (i < 2) seal(changed[i]);
    write(folder.where / "ipadic" / file_names[i], changed[i]);
  }
  const bool opened = use(folder.where);
  pm::fuzz::hold(opened || size >= 5, "the sound dictionary is refused");
  return 0;
}
