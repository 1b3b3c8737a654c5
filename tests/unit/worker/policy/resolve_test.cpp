// SPDX-License-Identifier: Apache-2.0
// Resolution of tiny checkpoints: ties by bytes, spellings, renames, heads that are not loaded, and the message for
// every mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/base/error.h"
#include "worker/policy/report.h"
#include "worker/policy/resolve.h"

namespace pm::policy {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int64_t part_bytes(const ModelMetadata& metadata) {
  int64_t bytes = 0;
  for (const Part& part : metadata.parts)
    bytes += part.units * part.elements_per_unit * part.count * size_of(part.dtype);
  return bytes;
}

TEST(Resolve, Gpt2HasADecoderWithItsSizes) {
  const Resolved gpt2(tiny_gpt2());
  const Model& model = gpt2.model;
  EXPECT_EQ(model.task, Task::Generate);
  ASSERT_EQ(model.stacks.size(), 1u);
  EXPECT_EQ(model.stacks[0].layers.size(), 3u);
  const Layer& layer = model.stacks[0].layers[1];
  EXPECT_EQ(layer.order, Order::Pre);
  EXPECT_EQ(layer.attention.mask, Mask::Causal);
  EXPECT_DOUBLE_EQ(layer.attention.scale, 0.5);
  const auto& mlp = std::get<DenseMlp>(layer.mlp.kind);
  EXPECT_EQ(mlp.activation, Activation::GeluNew);
  EXPECT_EQ(layer.mlp.width(), 80);
  EXPECT_TRUE(mlp.up.weight.conv1d);
  EXPECT_EQ(layer.attention.value.weight.part, 2);
  EXPECT_EQ(layer.attention.value.weight.fused, Fused::Concat);
  EXPECT_EQ(gpt2.param("heads.lm.logits.weight").shares, "decoder.token");
  EXPECT_EQ(part_bytes(model.metadata), model.metadata.checkpoint_bytes);
}

TEST(Resolve, ScaleMayDependOnTheLayer) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["scale_attn_by_inverse_layer_idx"] = true;
  EXPECT_DOUBLE_EQ(Resolved(gpt2).model.stacks[0].layers[2].attention.scale, 0.5 / 3);
}

TEST(Resolve, BuffersThatThePolicyIgnoresAreReported) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.dtype = "U8";
  gpt2.add("transformer.h.0.attn.bias", {1, 1, 40, 40});
  EXPECT_THAT(Resolved(gpt2).model.not_loaded, testing::ElementsAre("transformer.h.0.attn.bias"));
}

TEST(Tie, ADuplicateWithTheSameBytesSharesStorage) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.copy("lm_head.weight", "transformer.wte.weight");
  const Resolved resolved(gpt2);
  EXPECT_EQ(resolved.param("heads.lm.logits.weight").shares, "decoder.token");
  EXPECT_THAT(resolved.model.not_loaded, testing::ElementsAre("lm_head.weight"));
}

TEST(Tie, OtherBytesMakeASecondTable) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["tie_word_embeddings"] = true;  // bytes decide, not the flag
  gpt2.add("lm_head.weight", {101, 20});
  const Resolved resolved(gpt2);
  EXPECT_EQ(resolved.param("heads.lm.logits.weight").shares, "");
  EXPECT_EQ(resolved.model.metadata.checkpoint_bytes,
            Resolved(tiny_gpt2()).model.metadata.checkpoint_bytes + 101 * 20 * 4);
}

TEST(Spellings, TheSameBytesUnderTwoNamesAreOneTensor) {
  const std::string policy = "extends: gpt2\nstacks: {decoder: {input: {token: [wte, /embed]}}}\n";
  Synthetic gpt2 = tiny_gpt2();
  gpt2.copy("embed.weight", "transformer.wte.weight");
  EXPECT_THAT(Resolved(gpt2, policy).model.not_loaded, testing::ElementsAre("embed.weight"));
  gpt2.add("embed.weight", {101, 20});
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable, policy),
              AllOf(HasSubstr("should be one tensor and differ"), HasSubstr("policy.yaml:2")));
}

TEST(Spellings, OfSeveralWholeBiasesTheFirstCounts) {
  Synthetic bert = tiny_bert();
  EXPECT_EQ(Resolved(bert).param("heads.mlm.logits.bias").tensor->name, "cls.predictions.bias");
  bert.add("cls.predictions.decoder.bias", {101});
  const Resolved both(bert);
  EXPECT_EQ(both.param("heads.mlm.logits.bias").tensor->name, "cls.predictions.decoder.bias");
  EXPECT_THAT(both.model.not_loaded, testing::ElementsAre("cls.predictions.bias"));
}

TEST(Rename, OldNamesOfNormsAreRead) {
  Synthetic bert = tiny_bert();
  std::map<std::string, Synthetic::Tensor> old;
  for (const auto& [name, tensor] : bert.tensors) {
    std::string text = name;
    if (const size_t at = text.find("LayerNorm.weight"); at != std::string::npos)
      text.replace(at, 16, "LayerNorm.gamma");
    if (const size_t at = text.find("LayerNorm.bias"); at != std::string::npos) text.replace(at, 14, "LayerNorm.beta");
    old[text] = tensor;
  }
  bert.tensors = old;
  EXPECT_EQ(Resolved(bert).param("encoder.layers.1.attn.norm.weight").tensor->name,
            "bert.encoder.layer.1.attention.output.LayerNorm.gamma");
}

TEST(Heads, TensorsOfOtherHeadsAreKnownAndNotLoaded) {
  Synthetic bert = tiny_bert();
  bert.linear("cls.seq_relationship", 2, 20);
  EXPECT_THAT(Resolved(bert).model.not_loaded,
              testing::ElementsAre("cls.seq_relationship.bias", "cls.seq_relationship.weight"));
}

TEST(Optional, AnAbsentPoolerIsNoError) {
  Synthetic bert = tiny_bert();
  EXPECT_FALSE(Resolved(bert).model.stacks[0].output.pooler.has_value());
  bert.linear("bert.pooler.dense", 20, 20);
  EXPECT_TRUE(Resolved(bert).model.stacks[0].output.pooler.has_value());
}

TEST(Complaints, NameWhatIsMissingWithTheParameter) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.tensors.erase("transformer.h.1.mlp.c_fc.weight");
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable),
              AllOf(HasSubstr("no tensor \"transformer.h.1.mlp.c_fc.weight\""), HasSubstr("policies/gpt2.yaml:")));
}

TEST(Complaints, NameWhatNobodyReads) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("transformer.h.1.adapter.weight", {3});
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable),
              HasSubstr("no parameter of the policy reads \"transformer.h.1.adapter.weight\""));
}

TEST(Complaints, NameShapesFoundAndExpected) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("transformer.h.2.attn.c_attn.weight", {60, 20});
  EXPECT_THAT(
      refusal(gpt2, Reason::ModelUnreadable),
      HasSubstr("\"transformer.h.2.attn.c_attn.weight\" has shape [60, 20], expected [20, 60] (policies/gpt2.yaml:"));
}

TEST(Complaints, NameElementTypes) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.dtype = "I8";
  gpt2.add("transformer.ln_f.weight", {20});
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable), HasSubstr("element type I8, expected F32"));
  gpt2.dtype = "F8_E4M3";
  gpt2.add("transformer.ln_f.weight", {20});
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable), HasSubstr("element type F8_E4M3, which is not served"));
}

TEST(Complaints, NameTheKeyThatConfigLacks) {
  EXPECT_THAT(refusal(tiny_gpt2(), Reason::ModelUnreadable, "extends: gpt2\nlet: {hidden: n_width}\n"),
              AllOf(HasSubstr("config.json has no \"n_width\""), HasSubstr("policy.yaml:2")));
}

TEST(Complaints, UnknownQuantisationsAreRefusedByName) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["quantization_config"] = {{"quant_method", "hqq"}};
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable), AllOf(HasSubstr("quantization_config"), HasSubstr("hqq")));
}

TEST(Complaints, QuantisedMatricesOfConv1DAreRefused) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["quantization_config"] = {{"quant_method", "fp8"}};
  gpt2.tensors.at("transformer.h.1.attn.c_proj.weight").dtype = "F8_E4M3";
  gpt2.add("transformer.h.1.attn.c_proj.weight_scale_inv", {1, 1});
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable),
              AllOf(HasSubstr("h.1.attn.c_proj.weight"), HasSubstr("quantised matrix of a Conv1D")));
}

TEST(Complaints, ClassesThatThePolicyDoesNotKnowAreListed) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["architectures"] = {"GPT2ForMusic"};
  EXPECT_THAT(refusal(gpt2, Reason::UnknownArchitecture),
              AllOf(HasSubstr("GPT2ForMusic"), HasSubstr("GPT2LMHeadModel")));
  gpt2.config["model_type"] = "gpt9";
  EXPECT_THAT(refusal(gpt2, Reason::UnknownArchitecture), HasSubstr("gpt9"));
  gpt2.config["model_type"] = 3;
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable), HasSubstr("model_type"));
}

TEST(Complaints, RefusedVariantsSayWhy) {
  Synthetic bert = tiny_bert();
  bert.config["position_embedding_type"] = "rotary";
  EXPECT_THAT(refusal(bert, Reason::UnknownArchitecture), HasSubstr("position_embedding_type"));
}

TEST(Complaints, HostileSizesEndInAnError) {
  for (auto [key, value] : {std::pair<const char*, nlohmann::json>{"n_layer", int64_t{1} << 40},
                            {"n_layer", 0},
                            {"n_layer", -3},
                            {"n_head", 0},
                            {"n_head", -1},
                            {"n_embd", int64_t{1} << 62},
                            {"n_embd", "20"},
                            {"n_embd", 20.5},
                            {"n_inner", int64_t{1} << 40},
                            {"n_inner", 0},
                            {"vocab_size", -1},
                            {"activation_function", "mish"},
                            {"n_head", 7},
                            {"n_head", 1000}}) {
    Synthetic gpt2 = tiny_gpt2();
    gpt2.config[key] = value;
    EXPECT_NE(refusal(gpt2, Reason::ModelUnreadable), "resolved") << key << " " << value;
  }
}

TEST(UserPolicy, ReplacesTheBuiltInOne) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("transformer.h.1.adapter.weight", {3});
  const std::string policy = "extends: gpt2\nignore: ['h.{l}.adapter.weight']\n";
  EXPECT_THAT(Resolved(gpt2, policy).model.not_loaded, testing::ElementsAre("transformer.h.1.adapter.weight"));
  EXPECT_THAT(refusal(tiny_bert(), Reason::UnknownArchitecture, policy), HasSubstr("is for \"gpt2\""));
  EXPECT_THAT(refusal(gpt2, Reason::UnsupportedPolicy, "extends: gpt2\nstakcs: {}\n"),
              HasSubstr("policy.yaml:2: unknown key \"stakcs\""));
}

TEST(UserPolicy, TieToNothingIsAMistakeOfThePolicy) {
  const std::string policy = "extends: gpt2\nheads: {lm: {logits: {tie: decoder.tokens}}}\n";
  EXPECT_THAT(refusal(tiny_gpt2(), Reason::UnsupportedPolicy, policy),
              HasSubstr("policy.yaml:2: tie: \"decoder.tokens\""));
}

TEST(Eos, ComesFromGenerationConfigFirst) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["eos_token_id"] = 7;
  Resolved resolved(gpt2);
  EXPECT_THAT(resolved.model.eos, testing::ElementsAre(7));
  resolved.folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_THAT(resolve(*resolved.checkpoint).eos, testing::ElementsAre(3, 4));
  resolved.folder.write("generation_config.json", R"({"eos_token_id": nul)");
  EXPECT_THAT(resolve(*resolved.checkpoint).eos, testing::ElementsAre(7));
}

TEST(Report, ShowsPartsBytesAndWhatIsNotLoaded) {
  Synthetic bert = tiny_bert();
  bert.linear("cls.seq_relationship", 2, 20);
  const std::string report = inspect_report(Resolved(bert).model);
  EXPECT_THAT(report,
              AllOf(HasSubstr("BertForMaskedLM (bert), fill-mask"), HasSubstr("5 heads"), HasSubstr("37 columns"),
                    HasSubstr("101 rows"), HasSubstr("not loaded: cls.seq_relationship.bias")));
}

}  // namespace
}  // namespace pm::policy
