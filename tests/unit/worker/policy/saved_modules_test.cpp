// SPDX-License-Identifier: Apache-2.0
// What an adapter in memory may replace of a tiny GPT-2, whose head is tied to its table of tokens, and of classifiers.
#include "worker/policy/adapter/saved_modules.h"

#include <gmock/gmock.h>

#include <cstring>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::Key, testing::Pair;
using Tensors = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// An adapter with factors of one c_attn and these tensors besides, of elements 0, 1, 2, ...
checkpoint::AdapterFolder adapter_of(const Tensors& saved, const std::string& options) {
  const std::string module = "transformer.h.1.attn.c_attn";
  Tensors all{{module + ".lora_A.weight", {1, 20}}, {module + ".lora_B.weight", {60, 1}}};
  all.insert(all.end(), saved.begin(), saved.end());
  std::string header, data;
  for (const auto& [name, shape] : all) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const size_t begin = data.size();
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header += (header.empty() ? "{" : ", ") + ("\"base_model.model." + name) + R"(": {"dtype": "F32", "shape": )" +
              nlohmann::json(shape).dump() + R"(, "data_offsets": [)" + std::to_string(begin) + ", " +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  const std::string config =
      R"({"peft_type": "LORA", "r": 1, "target_modules": "attn\\.c_attn")" + (", " + options) + "}";
  return checkpoint::AdapterFolder::open(
      "a", {.config = checkpoint::in_memory(config),
            .weights = checkpoint::in_memory(checkpoint::number(header.size(), 8) + header + data)});
}

/// GPT-2 that scores classes.
Synthetic classifier() {
  Synthetic s = tiny_gpt2();
  s.config["architectures"] = {"GPT2ForSequenceClassification"};
  s.add("score.weight", {3, 20});
  return s;
}

std::string refusal_of(const Synthetic& base, const Tensors& saved, const std::string& options) {
  const Resolved resolved(base);
  try {
    bind_saved(resolved.model, saved_targets(resolved.model), adapter_of(saved, options));
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    return error.what();
  }
  return "";
}

const Tensors head{{"lm_head.weight", {101, 20}}}, table{{"transformer.wte.weight", {101, 20}}};

TEST(SavedModules, ATiedHeadAndItsTableAreTwo) {
  const Resolved gpt2(tiny_gpt2());
  const SavedTargets targets = saved_targets(gpt2.model);
  EXPECT_THAT(targets, ElementsAre(Key("lm_head"), Key("transformer.wte")));
  EXPECT_FALSE(targets.at("lm_head").is_table());
  EXPECT_TRUE(targets.at("transformer.wte").is_table());
  EXPECT_EQ(targets.at("lm_head").elements(), 101 * 20);
  const auto bound = [&](const Tensors& saved, const std::string& options) {
    return bind_saved(gpt2.model, targets, adapter_of(saved, options));
  };
  EXPECT_THAT(bound(head, R"("modules_to_save": ["lm_head"])"), ElementsAre(Pair("lm_head", "lm_head")));
  EXPECT_THAT(bound(table, R"("modules_to_save": ["wte"])"), ElementsAre(Pair("transformer.wte", "transformer.wte")));
}

TEST(SavedModules, AHeadThatTheAdapterTiesNeedNoName) {
  const std::string named = R"("modules_to_save": ["transformer.wte"])",
                    tied = named + R"(, "ensure_weight_tying": true)";
  Tensors both = head;
  both.push_back(table[0]);
  EXPECT_EQ(refusal_of(tiny_gpt2(), both, tied), "");
  EXPECT_THAT(refusal_of(tiny_gpt2(), table, tied), HasSubstr("ties lm_head of the base model to transformer.wte"));
  EXPECT_THAT(refusal_of(tiny_gpt2(), head, R"("modules_to_save": ["none"], "ensure_weight_tying": true)"),
              HasSubstr("neither does modules_to_save name it"));
}

TEST(SavedModules, ClassifiersAreLinearsOfTheirHead) {
  const Resolved classifying(classifier());
  EXPECT_THAT(saved_targets(classifying.model), ElementsAre(Key("score"), Key("transformer.wte")));
}

TEST(SavedModules, ShapesAreThoseOfTheBase) {
  const std::string options = R"("modules_to_save": ["score"])";
  EXPECT_EQ(refusal_of(classifier(), {{"score.weight", {3, 20}}}, options), "");
  EXPECT_THAT(refusal_of(classifier(), {{"score.weight", {4, 20}}}, options),
              HasSubstr("score has a weight [4, 20], and score of the base model is [3, 20]"));
  EXPECT_THAT(refusal_of(classifier(), {{"score.weight", {3, 20}}, {"score.bias", {3}}}, options),
              HasSubstr("has a bias, and score of the base model has none"));
}

TEST(SavedModules, WhatTheConfigNamesIsThere) {
  EXPECT_THAT(refusal_of(classifier(), {}, R"("modules_to_save": ["score"])"),
              HasSubstr("names score of the base model, and the file does not have it"));
  EXPECT_THAT(refusal_of(classifier(), {}, R"("modules_to_save": ["ln_f"])"),
              HasSubstr("names transformer.ln_f of the base model"));
  EXPECT_EQ(refusal_of(classifier(), {}, R"("modules_to_save": ["classifier"])"), "") << "the model has no such module";
}

TEST(SavedModules, RowsAreReadInBlocksOfModelsNames) {
  const Resolved classifying(classifier());
  std::vector<Arrays> blocks;
  read_saved(classifying.model, saved_targets(classifying.model),
             adapter_of({{"score.weight", {3, 20}}}, R"("modules_to_save": ["score"])"),
             [&](Arrays block) { blocks.push_back(std::move(block)); });
  ASSERT_EQ(blocks.size(), 1u);
  std::vector<float> all(60);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
  EXPECT_THAT(blocks[0], ElementsAre(Pair("score.weight@0", Array{{3, 20}, all})));
}

}  // namespace
}  // namespace pm::policy
