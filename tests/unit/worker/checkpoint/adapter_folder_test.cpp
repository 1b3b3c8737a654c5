// SPDX-License-Identifier: Apache-2.0
// Reads adapters whose files are in memory: what a config or a tensor's name may not say. tests/parity/test_adapters.py
// compares what adapters compute.
#include "worker/checkpoint/adapter_folder.h"

#include <gmock/gmock.h>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"

namespace pm::checkpoint {
namespace {

using testing::HasSubstr;

/// An adapter of one module, of rank 2.
struct Files {
  std::string module = "base_model.model.layers.0.q_proj";
  std::string options;  ///< more of the config, each after a comma

  AdapterFolder open() const {
    const std::string config =
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj"])" + options + "}";
    return AdapterFolder::open("a", {.config = in_memory(config), .weights = in_memory(weights())});
  }
  std::string weights() const {
    const std::string header =
        R"({")" + module + R"(.lora_A.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ")" +
        module + R"(.lora_B.weight": {"dtype": "F32", "shape": [5, 2], "data_offsets": [24, 64]}})";
    return number(header.size(), 8) + header + std::string(64, '\0');
  }
  std::string refusal() const {
    try {
      open();
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::ModelUnreadable);
      return error.what();
    }
    return "";
  }
};

std::string refused_option(const std::string& option) { return Files{.options = ", " + option}.refusal(); }
double scale_with(const std::string& option) {
  return Files{.options = ", " + option}.open().matrices().at("layers.0.q_proj").scale;
}

TEST(AdapterFolder, AModuleHasTwoFactorsAndAScale) {
  const AdapterFolder adapter = Files{}.open();
  ASSERT_EQ(adapter.matrices().size(), 1u);
  const AdapterMatrix& matrix = adapter.matrices().at("layers.0.q_proj");
  EXPECT_EQ(matrix.a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(matrix.b.shape, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(matrix.scale, 3);
  EXPECT_EQ(adapter.read(matrix.b), std::vector<float>(10));
}

TEST(AdapterFolder, BothFilesHaveToExist) {
  const Folder folder;
  const auto refusal = [&]() -> std::string {
    try {
      AdapterFolder::open(folder.path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(), HasSubstr("has no adapter_config.json"));
  folder.write("adapter_config.json", R"({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]})");
  EXPECT_THAT(refusal(), HasSubstr("neither adapter_model.safetensors nor adapter_model.bin"));
  folder.write("adapter_model.safetensors", Files{}.weights());
  EXPECT_EQ(refusal(), "");
}

TEST(AdapterFolder, ATensorWithoutAModuleIsRefused) {
  Files files{.module = "base_model.model"};  // the dot that ends the prefix also begins the suffix
  EXPECT_THAT(files.refusal(), HasSubstr("is no factor of a linear"));
  files.module = "base_model.model.";
  EXPECT_THAT(files.refusal(), HasSubstr("is no factor of a linear"));
}

/// An adapter that besides has a whole head.
AdapterFolder with_head(const std::string& options, const std::string& name, const std::string& shape = "[5, 3]") {
  const std::string factor = R"("base_model.model.layers.0.q_proj.lora_)",
                    header = "{" + factor +
                             R"(A.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, )" + factor +
                             R"(B.weight": {"dtype": "F32", "shape": [5, 2], "data_offsets": [24, 64]}, ")" + name +
                             R"(": {"dtype": "BF16", "shape": )" + shape + R"(, "data_offsets": [64, 94]}})",
                    config = R"({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], )" + options + "}";
  std::string data(94, '\0');
  for (size_t i = 0; i < 15; ++i) data[64 + 2 * i] = '\x80', data[65 + 2 * i] = '\x3f';  // 1
  data[64 + 2 * 7] = 0, data[65 + 2 * 7] = '\x40';                                       // 2: row 2, column 1
  return AdapterFolder::open(
      "a", {.config = in_memory(config), .weights = in_memory(number(header.size(), 8) + header + data)});
}

std::string refused_head(const std::string& options, const std::string& name, const std::string& shape = "[5, 3]") {
  try {
    with_head(options, name, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
  return "";
}

TEST(AdapterFolder, AModuleThatTheConfigNamesIsWhole) {
  const AdapterFolder adapter =
      with_head(R"("modules_to_save": ["classifier", "score"])", "base_model.model.score.weight");
  ASSERT_EQ(adapter.saved().size(), 1u);
  const SavedModule& score = adapter.saved().at("score");
  EXPECT_EQ(score.weight.shape, (std::vector<int64_t>{5, 3}));
  EXPECT_FALSE(score.bias);
  EXPECT_EQ(adapter.read(score.weight, 2, 2), (std::vector<float>{1, 2, 1, 1, 1, 1}));
  EXPECT_EQ(adapter.matrices().size(), 1u);
}

TEST(AdapterFolder, NamesOfWholeModulesAreEndsOfPaths) {
  const AdapterFolder adapter = with_head(R"("modules_to_save": ["classifier"])", "base_model.model.classifier.weight");
  for (const char* module : {"classifier", "pre_classifier", "model.classifier", "classifier.dense"})
    EXPECT_TRUE(adapter.saves(module)) << module;
  for (const char* module : {"classifiers", "lm_head", "classify.dense", ""}) EXPECT_FALSE(adapter.saves(module));
}

TEST(AdapterFolder, AWholeModuleThatTheConfigDoesNotNameIsRefused) {
  const std::string name = "base_model.model.lm_head.weight";
  EXPECT_THAT(refused_head(R"("modules_to_save": ["score"])", name), HasSubstr("nor of a module that modules_to_save"));
  EXPECT_THAT(refused_head(R"("modules_to_save": null)", name), HasSubstr("nor of a module that modules_to_save"));
  EXPECT_THAT(refused_head(R"("modules_to_save": "lm_head")", name), HasSubstr("expected a list of module names"));
  EXPECT_THAT(refused_head(R"("modules_to_save": [""])", name), HasSubstr("expected a list of module names"));
  EXPECT_EQ(refused_head(R"("modules_to_save": ["lm_head"])", name), "");
  EXPECT_EQ(refused_head(R"("modules_to_save": ["embed"], "ensure_weight_tying": true)", name), "");
}

TEST(AdapterFolder, AWholeModuleIsAMatrixAndHasAWeight) {
  const std::string options = R"("modules_to_save": ["score"])";
  EXPECT_THAT(refused_head(options, "base_model.model.score.weight", "[15]"), HasSubstr("row-major matrix"));
  EXPECT_THAT(refused_head(options, "base_model.model.score.bias", "[15]"), HasSubstr("a bias and no weight"));
  EXPECT_THAT(refused_head(options, "base_model.model.score.gamma"), HasSubstr("is no factor of a linear"));
  EXPECT_THAT(refused_head(options, "score.weight"), HasSubstr("is no factor of a linear"));
}

TEST(AdapterFolder, AConfigThatIsNestedDeeplyIsRefused) {
  for (const char* key : {"peft_type", "use_dora", "rank_pattern", "unknown"})
    EXPECT_THAT(refused_option('"' + std::string(key) + "\": " + std::string(200'000, '[') + std::string(200'000, ']')),
                HasSubstr("nested deeper than 64"));
  EXPECT_EQ(refused_option("\"unknown\": " + std::string(60, '[') + std::string(60, ']')), "");
}

TEST(AdapterFolder, AConfigOfManyKeysIsRefused) {
  std::string options;
  for (int key = 0; key < 20'000; ++key) options += ",\"" + std::to_string(key) + "\":1";
  EXPECT_THAT(Files{.options = options}.refusal(), HasSubstr("keys"));
}

TEST(AdapterFolder, PatternsAreNamesInWhichASpecialCharacterMayBeEscaped) {
  EXPECT_EQ(scale_with(R"("alpha_pattern": {"k_proj": 4, "0\\.q_proj": 8, "q_proj": 10})"), 4);
  EXPECT_EQ(scale_with(R"("alpha_pattern": {"^q_proj": 4, "^layers\\.0\\.q_proj$": 8})"), 4);
  for (const char* expression : {R"(layers.\\d.q_proj)", R"(\\w_proj)", R"(q_proj\\)", "(q|k)_proj", "q_.*"})
    EXPECT_THAT(refused_option(R"("alpha_pattern": {")" + std::string(expression) + R"(": 8})"),
                HasSubstr("only names of modules"));
}

TEST(AdapterFolder, AnEmptyTextSetsNothing) {
  EXPECT_TRUE(Files{}.open().adapts_all_layers());
  EXPECT_TRUE(Files{.options = R"(, "exclude_modules": "", "bias": "")"}.open().adapts_all_layers());
  EXPECT_FALSE(Files{.options = R"(, "exclude_modules": "k_proj")"}.open().adapts_all_layers());
  EXPECT_THAT(refused_option(R"("target_modules": "")"), HasSubstr("no target_modules"));
}

TEST(AdapterFolder, RsloraIsTrueOrFalse) {
  EXPECT_DOUBLE_EQ(scale_with(R"("use_rslora": true)"), 6 / std::sqrt(2.0));
  EXPECT_EQ(scale_with(R"("use_rslora": false)"), 3);
  EXPECT_EQ(scale_with(R"("use_rslora": null)"), 3);
  for (const char* other : {"0", "1", "\"no\"", "[]"})
    EXPECT_THAT(refused_option(std::string(R"("use_rslora": )") + other), HasSubstr("expected true or false"));
}

TEST(AdapterFolder, AnInitialisationThatChangesTheBaseIsRefusedInAnyCase) {
  for (const char* name : {"pissa", "pissa_niter_4", "OLoRA", "olora", "LoftQ", "lora_ga"})
    EXPECT_THAT(refused_option(std::string(R"("init_lora_weights": ")") + name + '"'), HasSubstr("changed base model"));
  EXPECT_EQ(refused_option(R"("init_lora_weights": "gaussian")"), "");
}

}  // namespace
}  // namespace pm::checkpoint
