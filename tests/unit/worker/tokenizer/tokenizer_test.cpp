// SPDX-License-Identifier: Apache-2.0
// Tests the tokenizer on hand-written files.
#include "worker/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"

namespace pm {
namespace {

using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer opened(const std::string& json) {
  TempFolder folder;
  test::write_tokenizer(folder.path(), json);
  return Tokenizer::open(folder.path());
}

/// Returns the error that `work` throws.
Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(Reason::Usage, "");
}

TEST(Tokenizer, TextBecomesTheIdsOfTheVocabularyAndBack) {
  const auto words = opened(test::word_level_json());
  EXPECT_THAT(words.encode("hello world there", false), ElementsAre(0, 1, 2));
  EXPECT_EQ(words.decode(std::vector<int32_t>{0, 1}), "hello world");
  EXPECT_EQ(words.vocab_size(), 4u);
}

TEST(Tokenizer, SpecialTokensAreAddedAndSkippedOnlyWhenAsked) {
  const auto words = opened(test::word_level_json());
  EXPECT_THAT(words.encode("hello"), ElementsAre(3, 0));
  EXPECT_THAT(words.encode("hello", false), ElementsAre(0));
  EXPECT_EQ(words.decode(std::vector<int32_t>{3, 0}), "hello");
  EXPECT_EQ(words.decode(std::vector<int32_t>{3, 0}, false), "[CLS] hello");
}

TEST(Tokenizer, TokensSayWhereTheyStandInTheText) {
  const auto words = opened(test::word_level_json());
  const auto tokens = words.encode_with_offsets("hello  world");
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].id, 3);
  EXPECT_EQ(tokens[0].sequence, -1);
  EXPECT_EQ(tokens[2].id, 1);
  EXPECT_EQ(tokens[2].sequence, 0);
  EXPECT_EQ(tokens[2].begin, 7u);
  EXPECT_EQ(tokens[2].end, 12u);
}

TEST(Tokenizer, OffsetsAreBytesOfWholeCharacters) {
  const auto bytes = opened(test::byte_level_json());
  const auto tokens = bytes.encode_with_offsets("\u20acx");
  ASSERT_EQ(tokens.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(tokens[i].begin, 0u);
    EXPECT_EQ(tokens[i].end, 3u);
  }
  EXPECT_EQ(tokens[3].begin, 3u);
  EXPECT_EQ(tokens[3].end, 4u);
}

TEST(Tokenizer, APairCarriesTypesAndTheTextOfEachToken) {
  const auto words = opened(test::word_level_json());
  const auto tokens = words.encode_pair("hello", "world hello");
  ASSERT_EQ(tokens.size(), 3u);
  std::vector<int32_t> types, sequences;
  for (const auto& token : tokens) types.push_back(token.type), sequences.push_back(token.sequence);
  EXPECT_THAT(types, ElementsAre(0, 1, 1));
  EXPECT_THAT(sequences, ElementsAre(0, 1, 1));
  EXPECT_EQ(tokens[2].begin, 6u);
  EXPECT_EQ(words.encode_pair("hello", "").size(), 1u) << "an empty second text is still a pair";
}

TEST(Tokenizer, RolesOfTokensComeFromTheCheckpointsFiles) {
  TempFolder folder;
  test::write_tokenizer(folder.path(), test::word_level_json());
  EXPECT_EQ(Tokenizer::open(folder.path()).special().cls, 3) << "[CLS] means this by its spelling";
  EXPECT_EQ(Tokenizer::open(folder.path()).special().mask, std::nullopt);
  std::ofstream(folder.path() / "tokenizer_config.json")
      << R"({"mask_token": {"content": "world"}, "pad_token": "nowhere", "cls_token": null})";
  std::ofstream(folder.path() / "special_tokens_map.json") << R"({"mask_token": "hello", "sep_token": "hello"})";
  const auto ids = Tokenizer::open(folder.path()).special();
  EXPECT_EQ(ids.mask, 0) << "special_tokens_map.json stands before tokenizer_config.json, as in transformers";
  EXPECT_EQ(ids.sep, 0);
  EXPECT_EQ(ids.pad, std::nullopt);
  EXPECT_EQ(ids.cls, std::nullopt);
  std::ofstream(folder.path() / "tokenizer_config.json") << "[]";
  EXPECT_THAT(error_of([&] { Tokenizer::open(folder.path()); }).what(), HasSubstr("tokenizer_config.json"));
}

TEST(Tokenizer, IdsAndSpellingsOfTheVocabulary) {
  const auto words = opened(test::word_level_json());
  EXPECT_EQ(words.token_to_id("world"), 1);
  EXPECT_EQ(words.token_to_id("World"), std::nullopt);
  EXPECT_EQ(words.id_to_token(1), "world");
  EXPECT_EQ(words.id_to_token(-1), "");
}

TEST(Tokenizer, ByteLevelTextSurvivesTheRoundTripWithZeroBytesAndEmptyText) {
  const auto bytes = opened(test::byte_level_json());
  for (const std::string& text :
       {std::string(), std::string("a\0b", 3), std::string(" Grüße, \u4e16\u754c \U0001F600\n")}) {
    const auto ids = bytes.encode(text);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(bytes.decode(ids), text);
  }
}

TEST(Tokenizer, IdsOutsideTheVocabularyDecodeToNothing) {
  const auto bytes = opened(test::byte_level_json());
  EXPECT_EQ(bytes.decode(std::vector<int32_t>{'a', 99999, -1, 'b'}), "ab");
}

TEST(Tokenizer, TextThatIsNotUtf8IsARequestError) {
  const auto bytes = opened(test::byte_level_json());
  const auto error = error_of([&] { bytes.encode("ab\xC3"); });
  EXPECT_EQ(error.kind, ErrorKind::Request);
  EXPECT_THAT(error.what(), HasSubstr("utf-8"));
}

TEST(Tokenizer, AFolderWithoutTokenizerIsAModelErrorThatNamesTheFile) {
  TempFolder folder;
  const auto error = error_of([&] { Tokenizer::open(folder.path()); });
  EXPECT_EQ(error.kind, ErrorKind::Model);
  EXPECT_EQ(error.reason, Reason::ModelUnreadable);
  EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
}

TEST(Tokenizer, AFolderWhoseTokenizerIsNotBuiltIsIdsOnlyWithTheReason) {
  TempFolder folder;
  std::ofstream(folder.path() / "tokenizer_config.json") << R"({"tokenizer_class": "BertJapaneseTokenizer"})";
  std::string why;
  EXPECT_EQ(Tokenizer::find(folder.path(), &why), std::nullopt);
  EXPECT_THAT(why, HasSubstr("BertJapaneseTokenizer"));
  EXPECT_THAT(error_of([&] { Tokenizer::open(folder.path()); }).what(),
              testing::AllOf(HasSubstr("BertJapaneseTokenizer"), HasSubstr("send token ids")));
}

TEST(Tokenizer, AVocabularyOfWordPiecesIsEnoughForBert) {
  TempFolder folder;
  std::ofstream(folder.path() / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nwor\n##ld\n";
  std::ofstream(folder.path() / "config.json") << R"({"model_type": "bert"})";
  const auto tokenizer = Tokenizer::open(folder.path());
  EXPECT_THAT(tokenizer.encode("Hello W\u00f6rld [MASK]"), ElementsAre(2, 5, 6, 7, 4, 3));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{2, 5, 6, 7, 3}), "hello world");
  EXPECT_EQ(tokenizer.special().mask, 4);
  EXPECT_EQ(tokenizer.special().bos, std::nullopt);
  const auto pair = tokenizer.encode_pair("hello", "world");
  ASSERT_EQ(pair.size(), 6u);
  EXPECT_EQ(pair[4].type, 1);
  EXPECT_EQ(pair[4].begin, 3u);
  EXPECT_EQ(pair[5].sequence, -1);
}

TEST(Tokenizer, BytesNeedNoVocabulary) {
  TempFolder folder;
  std::ofstream(folder.path() / "tokenizer_config.json") << R"({"tokenizer_class": "ByT5Tokenizer"})";
  const auto tokenizer = Tokenizer::open(folder.path());
  EXPECT_THAT(tokenizer.encode("a\u00fc"), ElementsAre('a' + 3, 0xC3 + 3, 0xBC + 3, 1));
  EXPECT_EQ(tokenizer.vocab_size(), 384u);
}

TEST(Tokenizer, ABrokenTokenizerIsAModelErrorNotACrash) {
  for (const char* text : {"", "{", "[]", "{\"version\": \"1.0\"}", "{\"model\": {\"type\": \"Nonsense\"}}"}) {
    const auto error = error_of([&] { opened(text); });
    EXPECT_EQ(error.kind, ErrorKind::Model) << text;
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.json")) << text;
  }
}

TEST(Tokenizer, OneHandleServesManyThreads) {
  const auto bytes = opened(test::byte_level_json());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const std::string text = "thread " + std::to_string(t) + " \u00fc";
      for (int i = 0; i < 200; ++i)
        if (bytes.decode(bytes.encode(text)) != text) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pm
