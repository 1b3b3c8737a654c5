// SPDX-License-Identifier: Apache-2.0
// Tests incremental detokenization.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm {
namespace {

Tokenizer opened(const std::string& json) {
  test::TempFolder folder;
  test::write_tokenizer(folder.path(), json);
  return Tokenizer::open(folder.path());
}

std::vector<int32_t> bytes_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (unsigned char byte : text) ids.push_back(byte);
  return ids;
}

/// A piece must be valid by itself: no U+FFFD when the stream has none.
std::string stream(Detokenizer& detokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (int32_t id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos) << "half a character after \"" << text << '"';
    text += piece;
  }
  return text + detokenizer.flush();
}

const std::string mixed_text = "a\u00fc\u4e16\U0001F600\U0001F469\u200D\U0001F680 end \u20ac\u20ac\u20ac";

TEST(Detokenizer, CharactersOfSeveralIdsComeOutWhole) {
  const auto tokenizer = opened(test::byte_level_json());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push(0xB8), "");
  EXPECT_EQ(detokenizer.push(0x96), "\u4e16");
  EXPECT_EQ(stream(detokenizer, bytes_of(mixed_text)), mixed_text);
}

TEST(Detokenizer, ByteFallbackRunsComeOutWhole) {
  const auto tokenizer = opened(test::byte_fallback_json());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(stream(detokenizer, bytes_of(mixed_text + mixed_text)), mixed_text + mixed_text);
}

TEST(Detokenizer, PiecesJoinedAreTheWholeDecodedAtOnce) {
  const auto tokenizer = opened(test::byte_fallback_json());
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::vector<int32_t>> words = {
      {256}, {257}, {258}, bytes_of("\u20ac"), bytes_of("\U0001F600"), bytes_of("x")};
  for (int round = 0; round < 50; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 30; ++i) {
      const auto& word = words[random() % words.size()];
      ids.insert(ids.end(), word.begin(), word.end());
    }
    Detokenizer detokenizer(tokenizer);
    EXPECT_EQ(stream(detokenizer, ids), tokenizer.decode(ids));
  }
}

TEST(Detokenizer, AContinuationKeepsTheSpaceThatAStartWouldLose) {
  const auto tokenizer = opened(test::byte_fallback_json());
  Detokenizer start(tokenizer);
  EXPECT_EQ(start.push(257), "b");
  const std::vector<int32_t> prompt = {256};
  Detokenizer continuation(tokenizer, prompt);
  EXPECT_EQ(continuation.push(257), " b");
}

TEST(Detokenizer, ACharacterThatThePromptBeganIsCompleted) {
  for (const auto& json : {test::byte_level_json(), test::byte_fallback_json()}) {
    const auto tokenizer = opened(json);
    Detokenizer detokenizer(tokenizer, bytes_of("abcdefgh\xF0\x9F"));
    EXPECT_EQ(detokenizer.push(0x98), "");
    EXPECT_EQ(detokenizer.push(0x80), "\U0001F600");
  }
}

TEST(Detokenizer, FlushShowsWhatNeverBecameACharacter) {
  const auto tokenizer = opened(test::byte_level_json());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, AnEndlessRunOfBrokenBytesIsNotHeldBackForEver) {
  const auto tokenizer = opened(test::byte_level_json());
  Detokenizer detokenizer(tokenizer);
  std::string text;
  for (int i = 0; i < 64; ++i) text += detokenizer.push(0xFF);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(detokenizer.push('a'), "a");
}

TEST(Detokenizer, SpecialTokensAreSilentAndDoNotDisturbWhatFollows) {
  const auto tokenizer = opened(test::byte_level_json());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push('a'), "a");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(detokenizer.push(256), "");
  EXPECT_EQ(detokenizer.push(' '), " ");
}

TEST(Detokenizer, AWordAfterManySpecialTokensKeepsItsSpace) {
  const auto tokenizer = opened(test::word_level_json());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0), "hello");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(detokenizer.push(3), "");
  EXPECT_EQ(detokenizer.push(1), " world");
}

TEST(Detokenizer, TheMarkOfAnUnfinishedWordComesOutOnlyAtTheEnd) {
  test::TempFolder folder;
  std::ofstream(folder.path() / "vocab.json") << R"({"<unk>": 0, "hel@@": 1, "lo": 2, "@@": 3})";
  std::ofstream(folder.path() / "merges.txt") << "#version: 0.2\n";
  std::ofstream(folder.path() / "config.json") << R"({"model_type": "ctrl"})";
  const auto tokenizer = Tokenizer::open(folder.path());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(1), "hel");
  EXPECT_EQ(detokenizer.push(2), "lo");
  EXPECT_EQ(detokenizer.push(1), " hel");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(detokenizer.push(0), "");
  EXPECT_EQ(detokenizer.flush(), "@@");
  const std::vector<int32_t> prompt = {2, 1};
  Detokenizer continuation(tokenizer, prompt);
  EXPECT_EQ(continuation.push(2), "lo");
  EXPECT_EQ(continuation.flush(), "");
  Detokenizer idle(tokenizer, prompt);
  EXPECT_EQ(idle.flush(), "");
}

}  // namespace
}  // namespace pm
