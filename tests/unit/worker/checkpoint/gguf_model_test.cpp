// SPDX-License-Identifier: Apache-2.0
// Tests which GGUF files of a folder are one model, and how config.json and tensors follow from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <set>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/checkpoint/folder.h"
#include "tests/unit/worker/checkpoint/gguf_bytes.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/gguf/architecture.h"
#include "worker/checkpoint/gguf/gguf_files.h"

namespace pm::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const Folder& folder, Reason reason = Reason::ModelUnreadable) {
  try {
    Checkpoint::open(folder.path);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, reason);
    return error.what();
  }
  return "accepted";
}

std::string refusal(const GgufBytes& file, Reason reason = Reason::ModelUnreadable) {
  Folder folder;
  folder.write("model.gguf", file.bytes());
  return refusal(folder, reason);
}

std::string floats(const std::vector<float>& values) {
  std::string out;
  for (const float value : values) out += number(std::bit_cast<uint32_t>(value), 4);
  return out;
}

/// Returns a model of the architecture llama without tensors but its embeddings [3, 2].
GgufBytes llama() {
  GgufBytes file;
  file.add("general.architecture", "llama").add("llama.context_length", 128u).add("llama.embedding_length", 4u);
  file.add("llama.block_count", 1u).add("llama.feed_forward_length", 6u).add("llama.attention.head_count", 2u);
  file.add("llama.attention.layer_norm_rms_epsilon", 0.5f).add("llama.rope.freq_base", 500.0f);
  file.tensors.push_back({"token_embd.weight", {2, 3}, 0, floats({1, 2, 3, 4, 5, 6})});
  return file;
}

std::vector<float> values(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo& tensor = *checkpoint.find(name);
  std::vector<float> out(static_cast<size_t>(tensor.bytes / 4));
  const Strip whole{0, 1, tensor.bytes, tensor.bytes};
  checkpoint.read(tensor, {&whole, 1}, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(GgufFiles, OneModelIsChosenWithAllItsParts) {
  const auto choose = [](std::vector<std::string> names) { return choose_gguf_files(names, "there"); };
  EXPECT_THAT(choose({"a.txt", "model-q4.gguf"}), ElementsAre("model-q4.gguf"));
  EXPECT_THAT(choose({"m-00002-of-00002.gguf", "m-00001-of-00002.gguf", "mmproj-m.gguf"}),
              ElementsAre("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"));
  EXPECT_THAT(choose({"m-00003-of-00002.gguf"}), ElementsAre("m-00003-of-00002.gguf"));  // no part of two
  EXPECT_THAT(choose({"README.md"}), IsEmpty());
  const auto refused = [&](std::vector<std::string> names) -> std::string {
    try {
      choose(std::move(names));
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::ModelUnreadable);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({"m-q4.gguf", "m-q8.gguf"}),
              HasSubstr("there has 2 models in GGUF, expected one: m-q4.gguf, m-q8"));
  EXPECT_THAT(refused({"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}),
              AllOf(HasSubstr("2 of the 3 parts"), HasSubstr("part 2 is absent")));
}

TEST(GgufModel, ConfigFollowsFromTheMetadata) {
  Folder folder;
  GgufBytes file = llama();
  file.add("tokenizer.ggml.eos_token_id", 2u)
      .add("tokenizer.ggml.eot_token_id", 1u)
      .add("tokenizer.ggml.bos_token_id", 0u);
  folder.write("model.gguf", file.bytes());
  const nlohmann::json found = Checkpoint::open(folder.path).config();
  const nlohmann::json wanted = {{"model_type", "llama"},    {"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 4},         {"num_hidden_layers", 1},
                                 {"intermediate_size", 6},   {"num_attention_heads", 2},
                                 {"num_key_value_heads", 2}, {"max_position_embeddings", 128},
                                 {"rms_norm_eps", 0.5},      {"vocab_size", 3},
                                 {"rope_theta", 500.0},      {"attention_bias", false},
                                 {"mlp_bias", false},        {"bos_token_id", 0},
                                 {"eos_token_id", {2, 1}}};
  EXPECT_EQ(found, wanted);
}

TEST(GgufModel, ConfigJsonBesideTheFileComesFirst) {
  Folder folder;
  folder.write("model.gguf", llama().bytes());
  folder.write("config.json", R"({"model_type": "mistral", "dtype": "bfloat16"})");
  EXPECT_EQ(Checkpoint::open(folder.path).config(), (nlohmann::json{{"model_type", "mistral"}, {"dtype", "bfloat16"}}));
}

TEST(GgufModel, WeightsInAnotherFormatComeFirst) {
  Folder folder;
  folder.write("config.json", "{}");
  folder.write("model.gguf", llama().bytes());
  folder.write_tensors("model.safetensors", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "hi");
  EXPECT_NE(Checkpoint::open(folder.path).find("a"), nullptr);
}

TEST(GgufModel, TheConversionOfRowsIsUndone) {
  Folder folder;
  GgufBytes file = llama();
  // two heads of four rows: rows 0, 2 of a module's head are stored as 0, 1
  file.tensors.push_back({"blk.0.attn_q.weight", {1, 8}, 0, floats({0, 1, 2, 3, 4, 5, 6, 7})});
  folder.write("model.gguf", file.bytes());
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_THAT(values(checkpoint, name), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  const TensorInfo& tensor = *checkpoint.find(name);
  std::vector<float> some(2);
  const Strip strip{4, 2, 4, 16};  // rows 1 and 5
  checkpoint.read(tensor, {&strip, 1}, std::as_writable_bytes(std::span(some)));
  EXPECT_THAT(some, ElementsAre(2, 6));
}

TEST(GgufModel, MatricesOfConv1dAreTransposed) {
  Folder folder;
  GgufBytes file;
  file.add("general.architecture", "gpt2").add("gpt2.context_length", 8u).add("gpt2.embedding_length", 2u);
  file.add("gpt2.block_count", 1u).add("gpt2.feed_forward_length", 3u).add("gpt2.attention.head_count", 1u);
  file.add("gpt2.attention.layer_norm_epsilon", 0.5f);
  file.tensors = {{"token_embd.weight", {2, 1}, 0, floats({0, 0})},
                  {"blk.0.ffn_up.weight", {2, 3}, 0, floats({1, 2, 3, 4, 5, 6})},
                  {"blk.0.ffn_up.bias", {3}, 0, floats({7, 8, 9})}};
  folder.write("model.gguf", file.bytes());
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  EXPECT_THAT(checkpoint.find("transformer.h.0.mlp.c_fc.weight")->shape, ElementsAre(2, 3));
  EXPECT_THAT(values(checkpoint, "transformer.h.0.mlp.c_fc.weight"), ElementsAre(1, 3, 5, 2, 4, 6));
  EXPECT_THAT(values(checkpoint, "transformer.h.0.mlp.c_fc.bias"), ElementsAre(7, 8, 9));
}

TEST(GgufModel, FactorsOfFrequenciesAreRopeScaling) {
  Folder folder;
  GgufBytes file = llama();
  file.tensors.push_back({"rope_freqs.weight", {2}, 0, floats({1, 8})});
  folder.write("model.gguf", file.bytes());
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  const nlohmann::json wanted = {{"rope_type", "longrope"},
                                 {"short_factor", {1.0, 8.0}},
                                 {"long_factor", {1.0, 8.0}},
                                 {"original_max_position_embeddings", 128},
                                 {"attention_factor", 1.0}};
  EXPECT_EQ(checkpoint.config()["rope_scaling"], wanted);
  EXPECT_EQ(checkpoint.find("rope_freqs.weight"), nullptr);
}

TEST(GgufModel, PartsAreReadAsOneModel) {
  Folder folder;
  GgufBytes first = llama(), second;
  first.add("split.no", 0u).add("split.count", 2u).add("split.tensors.count", 2u);
  second.add("split.no", 1u).add("split.count", 2u);
  second.tensors.push_back({"output_norm.weight", {2}, 0, floats({7, 8})});
  folder.write("m-00001-of-00002.gguf", first.bytes());
  folder.write("m-00002-of-00002.gguf", second.bytes());
  EXPECT_THAT(values(Checkpoint::open(folder.path), "model.norm.weight"), ElementsAre(7, 8));
  folder.write("m-00002-of-00002.gguf", first.bytes());
  EXPECT_THAT(refusal(folder), HasSubstr("says that it is part 0 (from 0) of 2, expected part 1 of 2"));
  second.tensors[0].name = "token_embd.weight";
  folder.write("m-00002-of-00002.gguf", second.bytes());
  EXPECT_THAT(refusal(folder), HasSubstr("\"token_embd.weight\" is in two of the files"));
  second.tensors.clear();
  folder.write("m-00002-of-00002.gguf", second.bytes());
  EXPECT_THAT(refusal(folder), HasSubstr("says that all parts have 2 tensors, they have 1"));
}

TEST(GgufModel, WhatTheTablesDoNotKnowIsRefusedByName) {
  GgufBytes file;
  EXPECT_THAT(refusal(file), HasSubstr("no general.architecture"));
  file.add("general.architecture", "mamba");
  EXPECT_THAT(refusal(file, Reason::UnknownArchitecture), AllOf(HasSubstr("\"mamba\""), HasSubstr("gemma2, ")));
  file = llama();
  file.tensors.push_back({"blk.0.ssm_a.weight", {2}, 0, floats({1, 2})});
  EXPECT_THAT(refusal(file), AllOf(HasSubstr("\"blk.0.ssm_a.weight\""), HasSubstr("policies/gguf/llama.json")));
  for (const char* name : {"blk.00.attn_norm.weight", "blk.-1.attn_norm.weight", "blk..attn_norm.weight",
                           "blk.0.attn_norm.scale", "blk.0.attn_norm", "attn_norm.weight"}) {
    file.tensors[1].name = name;
    EXPECT_THAT(refusal(file), HasSubstr(name));
  }
  file = llama();
  file.tensors.push_back({"blk.0.attn_q.weight", {1, 6}, 0, floats({0, 1, 2, 3, 4, 5})});
  EXPECT_THAT(refusal(file), HasSubstr("of 6 rows does not consist of pairs of rows of 2 heads"));
  GgufBytes lacking;
  lacking.add("general.architecture", "llama");
  EXPECT_THAT(refusal(lacking), HasSubstr("lacks the metadata llama."));
}

TEST(GgufModel, LayersThatDifferAreRefusedByTheirKey) {
  GgufBytes file = llama();
  file.keys.clear(), file.pairs = 0;
  file.add("general.architecture", "llama");
  const auto heads = [&](uint32_t second) {
    GgufBytes made = file;
    made.add_encoded("llama.embedding_length", 9, number(4, 4) + number(2, 8) + number(4, 4) + number(second, 4));
    return refusal(made);
  };
  EXPECT_THAT(heads(8), HasSubstr("llama.embedding_length differs between layers"));
  EXPECT_THAT(heads(4), testing::Not(HasSubstr("embedding_length")));
}

TEST(GgufModel, ScalingsThatAreNotReadAreRefusedByTheirType) {
  const auto scaled = [](const char* type, float factor) {
    GgufBytes file = llama();
    file.add("llama.rope.scaling.type", type).add("llama.rope.scaling.factor", factor);
    return file;
  };
  EXPECT_THAT(refusal(scaled("dynamic", 2)), HasSubstr("\"dynamic\""));
  EXPECT_EQ(refusal(scaled("linear", 2)), "accepted");
  EXPECT_EQ(refusal(scaled("yarn", 2)), "accepted");
  GgufBytes both = scaled("yarn", 2);
  both.tensors.push_back({"rope_freqs.weight", {2}, 0, floats({1, 8})});
  EXPECT_THAT(refusal(both), HasSubstr("has both factors of rotary frequencies and rope scaling"));
}

TEST(GgufTables, EveryTableHasTheKeysThatAreRead) {
  std::set<std::string> conditions;
  for (const GgufTable& table : gguf_tables()) {
    const nlohmann::json json = nlohmann::json::parse(table.text);
    const std::set<std::string> known = {"architecture", "when",    "model_type", "classes",
                                         "config",       "tensors", "ignore"};
    for (const auto& [key, value] : json.items()) EXPECT_TRUE(known.contains(key)) << table.name << ": " << key;
    for (const char* key : {"architecture", "model_type", "classes", "config", "tensors"})
      EXPECT_TRUE(json.contains(key)) << table.name << ": " << key;
    const std::set<std::string> options = {"name", "pairs_of", "add", "one_row", "transposed"};
    for (const auto& [name, row] : json["tensors"].items()) {
      EXPECT_TRUE(row.is_string() || row.is_object()) << table.name << ": " << name;
      if (!row.is_object()) continue;
      for (const auto& [key, value] : row.items())
        EXPECT_TRUE(options.contains(key)) << table.name << ": " << name << ": " << key;
    }
    const std::string condition = json["architecture"].get<std::string>() + " " + json.value("when", "");
    EXPECT_TRUE(conditions.insert(condition).second) << table.name << ": a second table for " << condition;
  }
}

}  // namespace
}  // namespace pm::checkpoint
