// SPDX-License-Identifier: Apache-2.0
// The words of the enumerations: each enumerator has one, and each word names one enumerator.
#include "worker/policy/spec/enums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace pm::policy {
namespace {

template <typename Enum>
struct EnumWords : testing::Test {};
using Enums = testing::Types<Task, ModelKind, Pool, Activation>;
TYPED_TEST_SUITE(EnumWords, Enums);

TYPED_TEST(EnumWords, GoThereAndBack) {
  const auto all = words<TypeParam>();
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(to_string(static_cast<TypeParam>(i)), all[i]);
    EXPECT_EQ(parse<TypeParam>(all[i]), static_cast<TypeParam>(i)) << all[i];
  }
  for (const char* word : {"", "none", "Embed", "embed ", "swish"}) EXPECT_FALSE(parse<TypeParam>(word)) << word;
}

TEST(WordsOfEnums, AreThoseOfPolicies) {
  EXPECT_EQ(to_string(Task::Embed), "embed");
  EXPECT_EQ(to_string(Task::Generate), "generate");
  EXPECT_EQ(to_string(Task::FillMask), "fill-mask");
  EXPECT_EQ(to_string(Task::NextSentence), "next-sentence");
  EXPECT_EQ(to_string(Task::Classify), "classify");
  EXPECT_EQ(to_string(Task::ClassifyTokens), "classify-tokens");
  EXPECT_EQ(to_string(Task::QuestionAnswering), "question-answering");
  EXPECT_EQ(to_string(Task::MultipleChoice), "multiple-choice");
  EXPECT_EQ(to_string(Task::Similarity), "similarity");
  EXPECT_EQ(to_string(Task::ClassifyImages), "classify-images");
  EXPECT_EQ(to_string(Task::ClassifyAudio), "classify-audio");
  EXPECT_EQ(to_string(Task::Transcribe), "transcribe");
  EXPECT_EQ(to_string(Task::DetectObjects), "detect-objects");
  EXPECT_EQ(to_string(Task::Forward), "forward");
  EXPECT_EQ(to_string(ModelKind::Encoder), "encoder");
  EXPECT_EQ(to_string(ModelKind::Decoder), "decoder");
  EXPECT_EQ(to_string(ModelKind::EncoderDecoder), "encoder-decoder");
  EXPECT_EQ(to_string(ModelKind::Dual), "dual");
  EXPECT_EQ(to_string(ModelKind::Vision), "vision");
  EXPECT_EQ(to_string(Pool::First), "first");
  EXPECT_EQ(to_string(Pool::Second), "second");
  EXPECT_EQ(to_string(Pool::Last), "last");
  EXPECT_EQ(to_string(Pool::LastButOne), "last_but_one");
  EXPECT_EQ(to_string(Pool::Eot), "eot");
  EXPECT_EQ(to_string(Pool::LastEos), "last_eos");
  EXPECT_EQ(to_string(Pool::Patches), "patches");
  EXPECT_EQ(to_string(Pool::Pooler), "pooler");
  EXPECT_EQ(to_string(Pool::Mean), "mean");
  EXPECT_EQ(to_string(Pool::ClsIndex), "cls_index");
  EXPECT_EQ(to_string(Activation::Gelu), "gelu");
  EXPECT_EQ(to_string(Activation::GeluNew), "gelu_new");
  EXPECT_EQ(to_string(Activation::Relu), "relu");
  EXPECT_EQ(to_string(Activation::Silu), "silu");
  EXPECT_EQ(to_string(Activation::QuickGelu), "quick_gelu");
  EXPECT_EQ(to_string(Activation::Relu2), "relu2");
  EXPECT_EQ(to_string(Activation::Tanh), "tanh");
}

TEST(WordsOfEnums, OfStatesOfEntitiesAreThoseOfPolicies) {
  EXPECT_EQ(to_string(EntityStates::Each), "each");
  EXPECT_EQ(to_string(EntityStates::First), "first");
  EXPECT_EQ(to_string(EntityStates::Pair), "pair");
  EXPECT_EQ(to_string(EntityStates::Span), "span");
}

TEST(WordsOfEnums, OfGlobalTokensAreThoseOfPolicies) {
  EXPECT_EQ(to_string(GlobalTokens::None), "none");
  EXPECT_EQ(to_string(GlobalTokens::First), "first");
  EXPECT_EQ(to_string(GlobalTokens::BeforeSeparator), "before_separator");
  EXPECT_EQ(to_string(GlobalTokens::AfterSeparators), "after_separators");
  for (const std::string_view word : words<GlobalTokens>()) EXPECT_EQ(to_string(*parse<GlobalTokens>(word)), word);
  EXPECT_FALSE(parse<GlobalTokens>("last").has_value());
}

TEST(WordsOfEnums, OfActivationsHaveOtherNamesInConfigs) {
  for (const auto& [word, activation] : std::map<std::string, Activation>{{"swish", Activation::Silu},
                                                                          {"silu", Activation::Silu},
                                                                          {"gelu_python", Activation::Gelu},
                                                                          {"gelu", Activation::Gelu},
                                                                          {"gelu_pytorch_tanh", Activation::GeluNew},
                                                                          {"gelu_fast", Activation::GeluNew},
                                                                          {"gelu_accurate", Activation::GeluNew},
                                                                          {"gelu_python_tanh", Activation::GeluNew},
                                                                          {"gelu_new", Activation::GeluNew}})
    EXPECT_EQ(parse_config_activation(word), activation) << word;
  EXPECT_FALSE(parse_config_activation("mish").has_value());
}

}  // namespace
}  // namespace pm::policy
