// SPDX-License-Identifier: Apache-2.0
// Tests what is read from a sentence-transformers folder, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/server/serving/sentence_transformer.h"

namespace pm::test {
namespace {

using namespace server;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct SentenceFolder : testing::Test {
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  }
  /// Writes modules.json with a Transformer, a Pooling and these modules, each "Kind" in a folder of its name.
  void write_modules(const std::vector<std::string>& kinds) const {
    json modules = json::array({{{"path", ""}, {"type", "sentence_transformers.models.Transformer"}},
                                {{"path", "1_Pooling"}, {"type", "sentence_transformers.models.Pooling"}}});
    for (const std::string& kind : kinds)
      modules.push_back({{"path", kind}, {"type", "sentence_transformers.models." + kind}});
    write("modules.json", modules.dump());
    write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  }
  void write_weights(const std::string& name, const std::vector<Tensor>& tensors) const {
    json header = json::object();
    std::string bytes;
    for (const Tensor& one : tensors) {
      const size_t begin = bytes.size();
      bytes.append(reinterpret_cast<const char*>(one.values.data()), 4 * one.values.size());
      header[one.name] = {{"dtype", "F32"}, {"shape", one.shape}, {"data_offsets", {begin, bytes.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    write(name, std::string(reinterpret_cast<const char*>(&size), 8) + text + bytes);
  }
  void write_dense(json config = json::object()) const {
    json whole = {{"in_features", 2},
                  {"out_features", 3},
                  {"bias", false},
                  {"activation_function", "torch.nn.modules.linear.Identity"}};
    whole.update(config);
    write("Dense/config.json", whole.dump());
    write_weights("Dense/model.safetensors", {{"linear.weight", {3, 2}, {1, 10, 2, 20, 3, 30}}});
  }
  SentenceTransformer read() const { return *read_sentence_transformer(folder.path(), "last_hidden_state", 2); }
  std::string error() const {
    try {
      read();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  TempFolder folder;
};

TEST_F(SentenceFolder, AFolderWithoutModulesIsNone) {
  EXPECT_FALSE(read_sentence_transformer(folder.path(), "last_hidden_state", 2).has_value());
}

TEST_F(SentenceFolder, PoolingsComeInTheOrderOfTheFolder) {
  write_modules({});
  EXPECT_THAT(read().embedding.poolings, ElementsAre(Pooling::Mean));
  EXPECT_FALSE(read().embedding.normalize);
  EXPECT_FALSE(read().embedding.skips_prompt);
  write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true, "pooling_mode_cls_token": true})");
  EXPECT_THAT(read().embedding.poolings, ElementsAre(Pooling::First, Pooling::Last));
  write("1_Pooling/config.json", R"({"pooling_mode": ["weightedmean", "max"], "include_prompt": false})");
  EXPECT_THAT(read().embedding.poolings, ElementsAre(Pooling::WeightedMean, Pooling::Max));
  EXPECT_TRUE(read().embedding.skips_prompt);
  write("1_Pooling/config.json", "{}");
  EXPECT_THAT(read().embedding.poolings, ElementsAre(Pooling::Mean)) << "the default of sentence-transformers";
  write("1_Pooling/config.json", R"({"pooling_mode": "attention"})");
  EXPECT_THAT(read().refusal, HasSubstr("attention"));
}

TEST_F(SentenceFolder, ADenseModuleIsReadWithItsMatrixTransposed) {
  write_modules({"Dense", "Normalize"});
  write_dense();
  const auto one = read();
  EXPECT_EQ(one.refusal, "");
  EXPECT_TRUE(one.embedding.normalize) << "the last Normalize is what a request may switch off";
  ASSERT_EQ(one.embedding.modules.size(), 1u);
  const auto& dense = std::get<DenseModule>(*one.embedding.modules[0]);
  EXPECT_EQ(dense.weight, (std::vector<float>{1, 2, 3, 10, 20, 30}));
  EXPECT_TRUE(dense.bias.empty());
  EXPECT_EQ(dense.activation, Activation::Identity);
}

TEST_F(SentenceFolder, WeightsOf16BitsAreWidened) {
  write_modules({"Dense"});
  for (const auto& [type, values] :
       std::map<std::string, std::array<uint16_t, 2>>{{"F16", {0x3c00, 0xc100}}, {"BF16", {0x3f80, 0xc020}}}) {
    write_dense({{"out_features", 1}});
    const std::string text =
        json{{"linear.weight", {{"dtype", type}, {"shape", {1, 2}}, {"data_offsets", {0, 4}}}}}.dump();
    const uint64_t size = text.size();
    write("Dense/model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text +
                                         std::string(reinterpret_cast<const char*>(values.data()), 4));
    EXPECT_EQ(std::get<DenseModule>(*read().embedding.modules[0]).weight, (std::vector<float>{1, -2.5}));
  }
}

TEST_F(SentenceFolder, WeightsThatDoNotFitAreErrors) {
  write_modules({"Dense"});
  write_dense({{"in_features", 4}});
  EXPECT_THAT(error(), testing::AllOf(HasSubstr("in_features is 4"), HasSubstr("has 2 values")));
  write_dense({{"bias", true}});
  EXPECT_THAT(error(), HasSubstr("no tensor linear.bias"));
  write_dense({{"out_features", 5}});
  EXPECT_THAT(error(), testing::AllOf(HasSubstr("linear.weight"), HasSubstr("[3,2]"), HasSubstr("[5,2]")));
  write_dense();
  write_weights("Dense/model.safetensors", {{"linear.weight", {3, 2}, {1, 10, 2, 20, 3, 30}}, {"more", {1}, {1}}});
  EXPECT_THAT(error(), HasSubstr("2 tensors, of which 1 are known here"));
  std::filesystem::remove(folder.path() / "Dense/model.safetensors");
  EXPECT_THAT(error(), HasSubstr("Dense"));
  write("modules.json", R"([{"path": "../x", "type": "a.Pooling"}])");
  EXPECT_THAT(error(), HasSubstr("../x"));
}

TEST_F(SentenceFolder, WhatIsNotSupportedIsARefusalWithItsName) {
  write_modules({"LSTM"});
  EXPECT_THAT(read().refusal, HasSubstr("LSTM"));
  write_modules({"Dense"});
  write_dense({{"activation_function", "torch.nn.modules.activation.Hardtanh"}});
  EXPECT_THAT(read().refusal, testing::AllOf(HasSubstr("Hardtanh"), HasSubstr("GELU")));
  write_dense({{"module_input_name", "token_embeddings"}});
  EXPECT_THAT(read().refusal, HasSubstr("token_embeddings"));
  write_modules({});
  write("config_sentence_transformers.json", R"({"similarity_fn_name": "maxsim"})");
  EXPECT_THAT(read().refusal, HasSubstr("maxsim"));
  write("config_sentence_transformers.json", "{}");
  write("sentence_bert_config.json", R"({"do_lower_case": true})");
  EXPECT_THAT(read().refusal, HasSubstr("do_lower_case"));
}

TEST_F(SentenceFolder, PromptsAreChosenByUse) {
  write_modules({});
  write("config_sentence_transformers.json",
        R"({"prompts": {"query": "q: ", "corpus": "c: ", "passage": "p: ", "x": "x: "}, "default_prompt_name": "x"})");
  auto prompts = read().prompts;
  EXPECT_EQ(prompts.of(TextUse::Query), "q: ");
  EXPECT_EQ(prompts.of(TextUse::Document), "p: ");
  EXPECT_EQ(prompts.of(TextUse::Unknown), "x: ");
  write("config_sentence_transformers.json", R"({"prompts": {"x": "x: "}})");
  prompts = read().prompts;
  EXPECT_EQ(prompts.of(TextUse::Query), "");
  EXPECT_EQ(prompts.by_name.at("x"), "x: ");
}

}  // namespace
}  // namespace pm::test
