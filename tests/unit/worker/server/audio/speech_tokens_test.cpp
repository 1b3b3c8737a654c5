// SPDX-License-Identifier: Apache-2.0
// Tests of what generation_config.json says of speech, and of the names of languages.
#include "worker/server/serving/speech_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/server/audio/languages.h"

namespace pm::test {
namespace {

using server::SpeechTokens;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

struct SpeechTokensOf : testing::Test {
  std::optional<SpeechTokens> read(const std::string& config) {
    std::ofstream(folder.path() / "generation_config.json") << config;
    return SpeechTokens::read(folder.path(), 100);
  }
  TempFolder folder;
};

TEST_F(SpeechTokensOf, ACheckpointOfManyLanguages) {
  const auto made =
      read(R"({"no_timestamps_token_id": 60, "lang_to_id": {"<|en|>": 50, "<|yue|>": 51}, "language": "de",
      "task_to_id": {"transcribe": 56, "translate": 55}, "prev_sot_token_id": 58, "max_initial_timestamp_index": 5,
      "is_multilingual": true})");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->first_timestamp(), 61);
  EXPECT_THAT(made->languages, UnorderedElementsAre(Pair("en", 50), Pair("yue", 51)));
  EXPECT_TRUE(made->translates());
  EXPECT_EQ(made->previous, 58);
  EXPECT_EQ(made->most_initial, 5);
  EXPECT_EQ(made->language, "de");
}

TEST_F(SpeechTokensOf, ACheckpointOfOneLanguageHasNoTasks) {
  const auto made =
      read(R"({"no_timestamps_token_id": 60, "lang_to_id": {"<|en|>": 50}, "task_to_id": {"translate": 55},
      "is_multilingual": false})");
  EXPECT_TRUE(made && made->languages.empty() && !made->translates() && !made->previous && !made->most_initial);
}

TEST_F(SpeechTokensOf, OtherCheckpointsHaveNone) {
  EXPECT_FALSE(SpeechTokens::read(folder.path(), 100));
  EXPECT_FALSE(read(R"({"num_beams": 5})"));
}

TEST_F(SpeechTokensOf, WhatIsNoTokenIsRefused) {
  const auto refusal = [&](const std::string& config) -> std::string {
    try {
      read(config);
    } catch (const Error& error) {
      return error.reason == Reason::ModelUnreadable ? error.what() : "another reason";
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refusal(R"({"no_timestamps_token_id": 100})"),
              HasSubstr("no_timestamps_token_id is 100, expected a token"));
  EXPECT_THAT(refusal(R"({"no_timestamps_token_id": "x"})"), HasSubstr("is \"x\""));
  EXPECT_THAT(refusal(R"({"no_timestamps_token_id": 6, "lang_to_id": {"<|en|>": -1}})"),
              HasSubstr("lang_to_id.<|en|> is -1"));
  EXPECT_THAT(refusal(R"({"no_timestamps_token_id": 6, "task_to_id": [1]})"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(R"({"no_timestamps_token_id": 6, "is_multilingual": 3})"), HasSubstr("wrong type"));
}

TEST(Languages, HaveCodesAndNames) {
  EXPECT_EQ(server::language_code("de"), "de");
  EXPECT_EQ(server::language_code("German"), "de");
  EXPECT_EQ(server::language_code("castilian"), "es");
  EXPECT_FALSE(server::language_code("klingon"));
  EXPECT_EQ(server::language_name("es"), "spanish");
  EXPECT_EQ(server::language_name("yue"), "cantonese");
  EXPECT_EQ(server::language_name("xx"), "xx");
}

}  // namespace
}  // namespace pm::test
