// SPDX-License-Identifier: Apache-2.0
// Texts are compared with transformers in tests/parity/test_transcription.py.
#include "worker/tokenizer/ctc_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

struct Ctc : testing::Test {
  Ctc() { write("vocab.json", R"({"<pad>": 0, "|": 1, "A": 2, "B": 3, "Ä": 4, ".": 5})"); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder.path() / name) << text; }
  CtcText decode(const std::vector<int64_t>& ids) { return CtcDecoder::find(folder.path())->decode(ids); }
  std::string refusal() {
    try {
      CtcDecoder::find(folder.path());
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  TempFolder folder;
};

TEST_F(Ctc, RepetitionsAreOneTokenAndBlanksSeparateThem) {
  EXPECT_EQ(decode({0, 2, 2, 0, 2, 3, 3, 0}).text, "AAB");
  EXPECT_EQ(decode({}).text, "");
  EXPECT_EQ(decode({0, 0}).text, "");
  EXPECT_EQ(CtcDecoder::find(folder.path())->collapse(std::vector<int64_t>{0, 2, 2, 0, 2, 1, 3, 0}),
            (std::vector<int64_t>{2, 2, 1, 3}));
}

TEST_F(Ctc, WordsHaveTheFramesOfTheirTokens) {
  const auto text = decode({1, 2, 2, 0, 3, 1, 1, 0, 0, 4, 0, 1});
  EXPECT_EQ(text.text, "AB Ä");
  EXPECT_EQ(text.words, (std::vector<CtcWord>{{"AB", 1, 5}, {"Ä", 9, 10}}));
}

TEST_F(Ctc, AnIdOutsideOfTheVocabularyIsUnknown) {
  EXPECT_EQ(decode({2, 99}).text, "A<unk>");
  EXPECT_EQ(decode({6, 7, 8}).text, "<s></s><unk>");  // special tokens without ids stand behind the vocabulary
}

TEST_F(Ctc, OptionsAreThoseOfTheConfig) {
  write("tokenizer_config.json",
        R"({"do_lower_case": true, "word_delimiter_token": {"content": "."}, "replace_word_delimiter_char": "-"})");
  EXPECT_EQ(decode({4, 0, 5, 3}).text, "ä-b");
  EXPECT_EQ(decode({4, 0, 5, 3}).words, (std::vector<CtcWord>{{"Ä", 0, 1}, {"B", 3, 4}}));
  write("tokenizer_config.json", R"({"pad_token": "A", "clean_up_tokenization_spaces": true})");
  EXPECT_EQ(decode({3, 2, 3, 1, 5}).text, "BB.");
}

TEST_F(Ctc, ALanguageIsChosenByTargetLang) {
  write("vocab.json", R"({"eng": {"<pad>": 0, "A": 1}, "deu": {"<pad>": 0, "Ä": 1}})");
  EXPECT_THAT(refusal(), HasSubstr("several languages; choose one as target_lang"));
  write("tokenizer_config.json", R"({"target_lang": "deu"})");
  EXPECT_EQ(decode({1}).text, "Ä");
  write("tokenizer_config.json", R"({"target_lang": "fra"})");
  EXPECT_THAT(refusal(), HasSubstr("no vocabulary of the language \"fra\""));
}

TEST_F(Ctc, WithoutAVocabularyOrWithAnotherTokenizerThereIsNone) {
  std::string why;
  write("tokenizer_config.json", R"({"tokenizer_class": "Speech2TextTokenizer"})");
  EXPECT_FALSE(CtcDecoder::find(folder.path(), &why));
  EXPECT_THAT(why, HasSubstr("Speech2TextTokenizer"));
  std::filesystem::remove(folder.path() / "vocab.json");
  EXPECT_FALSE(CtcDecoder::find(folder.path(), &why));
  EXPECT_THAT(why, HasSubstr("no vocab.json"));
  write("tokenizer_config.json", "{}");
  write("vocab.json", "[]");
  EXPECT_THAT(refusal(), HasSubstr("not a JSON object"));
  write("vocab.json", R"({"A": "first"})");
  EXPECT_THAT(refusal(), HasSubstr("the id of \"A\" is \"first\""));
}

}  // namespace
}  // namespace pm::test
