// SPDX-License-Identifier: Apache-2.0
// What a resolved model and its folder say about what can be asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/server/serving/capabilities.h"

namespace pm::test {
namespace {

using policy::Model;
using server::Capabilities;
using server::Pooling;

policy::Stack stack(const std::string& name, bool tokens, const std::string& pooler = "") {
  policy::Stack stack;
  stack.name = name;
  stack.hidden = 8;
  stack.positions = 32;
  if (tokens) stack.input.token.emplace();
  stack.layers.resize(2);
  for (auto& layer : stack.layers) layer.attention.heads = 4;
  if (!pooler.empty()) stack.output.pooler.emplace().pool = *policy::parse<policy::Pool>(pooler);
  if (pooler == "first") stack.output.pooler->activation = policy::Activation::Tanh;
  return stack;
}

policy::Head head(const std::string& name, const std::string& stack, const std::string& pool,
                  std::vector<std::string> outputs) {
  policy::Head head;
  head.name = name;
  head.stack = stack;
  head.kind = policy::ClassesSpec{.pool = policy::parse<policy::Pool>(pool), .transform = {}, .linear = {}};
  head.outputs = std::move(outputs);
  return head;
}

Model model(const std::string& task, const std::string& kind, std::vector<policy::Stack> stacks,
            std::vector<policy::Head> heads = {}) {
  Model model;
  model.architecture = "Tiny";
  model.task = *policy::parse<policy::Task>(task);
  model.kind = *policy::parse<policy::ModelKind>(kind);
  model.stacks = std::move(stacks);
  model.heads = std::move(heads);
  return model;
}

struct AbilitiesOf : testing::Test {
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << text;
  }
  Capabilities of(const Model& model) const { return server::read_capabilities(model, folder.path()); }
  TempFolder folder;
};

TEST_F(AbilitiesOf, EncodersEmbedByTheMeanAndDecodersByTheLastToken) {
  const auto encoder = of(model("embed", "encoder", {stack("encoder", true, "first")}));
  EXPECT_EQ(encoder.text.output, "last_hidden_state");
  EXPECT_THAT(encoder.text.poolings, testing::ElementsAre(Pooling::Mean));
  EXPECT_EQ(encoder.pooler, "pooler_output");
  EXPECT_EQ(encoder.positions, 32);
  EXPECT_TRUE(encoder.image.output.empty());
  EXPECT_THAT(of(model("generate", "decoder", {stack("decoder", true)})).text.poolings,
              testing::ElementsAre(Pooling::Last));
  auto decoder = stack("decoder", true);
  for (auto& layer : decoder.layers) layer.cross.emplace();
  EXPECT_EQ(of(model("embed", "encoder-decoder", {stack("encoder", true), decoder})).text.output,
            "encoder_last_hidden_state");
}

TEST_F(AbilitiesOf, TowersEmbedByTheirProjectionsAndImagesByTheirPooler) {
  const auto both = of(
      model("similarity", "dual", {stack("text", true, "eot"), stack("vision", false, "first")},
            {head("text", "text", "pooler", {"text_embeds"}), head("vision", "vision", "pooler", {"image_embeds"})}));
  EXPECT_EQ(both.text.output, "text_embeds");
  EXPECT_EQ(both.image.output, "image_embeds");
  EXPECT_TRUE(both.text.poolings.empty());
  EXPECT_EQ(both.states, "text_model_output.last_hidden_state");
  const auto text = of(model("embed", "encoder", {stack("text", true, "eot")}));
  EXPECT_EQ(text.text.output, "pooler_output");
  EXPECT_TRUE(text.text.poolings.empty());
  const auto vision = of(model("embed", "vision", {stack("vision", false, "first")}));
  EXPECT_EQ(vision.image.output, "pooler_output");
  EXPECT_FALSE(vision.takes_text);
  EXPECT_EQ(vision.image_tokens, 32);
  EXPECT_FALSE(vision.serves("/similarity"));
  EXPECT_THAT(of(model("embed", "vision", {stack("vision", false)})).image.poolings,
              testing::ElementsAre(Pooling::First));
}

TEST_F(AbilitiesOf, ListenersTakeAudioAndNoText) {
  policy::Stack listens = stack("encoder", false);
  policy::Convolutions& convolutions = listens.input.convolutions.emplace();
  convolutions.input = "input_values";
  convolutions.layers.resize(2);
  convolutions.layers[0].stride = 5;
  convolutions.layers[1].stride = 2;
  const auto can = of(model("embed", "encoder", {listens}));
  EXPECT_EQ(can.audio, "input_values");
  EXPECT_EQ(can.audio_stride, 10);
  EXPECT_FALSE(can.takes_text);
  EXPECT_FALSE(can.takes_images);
  EXPECT_FALSE(can.serves("/v1/embeddings"));
  EXPECT_FALSE(can.serves("/similarity"));
  EXPECT_FALSE(can.serves("/tokenize"));
  EXPECT_FALSE(can.serves("/v1/audio/transcriptions"));
  EXPECT_TRUE(can.serves("/embed"));
  EXPECT_TRUE(can.serves("/forward"));
  EXPECT_TRUE(of(model("transcribe", "encoder", {listens})).serves("/v1/audio/transcriptions"));
  EXPECT_TRUE(of(model("classify-audio", "encoder", {listens})).serves("/v1/audio/classifications"));
  EXPECT_EQ(of(model("forward", "encoder", {listens}, {head("speaker", "encoder", "", {"logits", "embeddings"})}))
                .audio_embedding.output,
            "embeddings");
  auto decoder = stack("decoder", true);
  for (auto& layer : decoder.layers) layer.cross.emplace();
  const auto both = of(model("embed", "encoder-decoder", {listens, decoder}));
  EXPECT_FALSE(both.serves("/rerank"));
  EXPECT_FALSE(both.serves("/v1/embeddings"));
  EXPECT_FALSE(both.serves("/embed"));
  const auto writes = of(model("generate", "encoder-decoder", {listens, decoder}));
  EXPECT_TRUE(writes.writes_speech());
  EXPECT_TRUE(writes.serves("/v1/audio/transcriptions"));
  for (const char* route :
       {"/generate", "/v1/completions", "/v1/chat/completions", "/generate_text/*", "/v1/embeddings"})
    EXPECT_FALSE(writes.serves(route)) << route;
}

TEST_F(AbilitiesOf, ACaptionerTakesImagesToGenerateFrom) {
  auto decoder = stack("decoder", true);
  for (auto& layer : decoder.layers) layer.cross.emplace();
  const auto can = of(model("generate", "encoder-decoder", {stack("encoder", false), decoder}));
  EXPECT_TRUE(can.captions_images());
  EXPECT_TRUE(can.serves("/generate"));
  for (const char* route :
       {"/v1/completions", "/v1/chat/completions", "/generate_text/*", "/v1/embeddings", "/v1/audio/transcriptions"})
    EXPECT_FALSE(can.serves(route)) << route;
}

TEST_F(AbilitiesOf, APoolerWithoutActivationEmbedsAndKeepsItsLength) {
  auto encoder = stack("encoder", true, "first");
  encoder.output.pooler->activation.reset();  // DPR
  const auto can = of(model("embed", "encoder", {encoder}));
  EXPECT_EQ(can.text.output, "pooler_output");
  EXPECT_TRUE(can.text.poolings.empty());
  EXPECT_FALSE(can.text.normalize);
}

TEST_F(AbilitiesOf, TheTaskForwardHasNoRouteOfItsOwn) {
  EXPECT_THAT(of(model("forward", "encoder", {stack("encoder", true)})).routes(),
              testing::ElementsAre("POST /forward", "POST /tokenize", "POST /detokenize"));
}

TEST_F(AbilitiesOf, SentenceTransformersDecideWhereTheirFilesAre) {
  const auto modules = [&](const std::string& last) {
    write(
        "modules.json",
        R"([{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})" +
            last + "]");
  };
  modules("");
  write("1_Pooling/config.json",
        R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": null})");
  write("sentence_bert_config.json", R"({"max_seq_length": 20, "do_lower_case": false})");
  write("config_sentence_transformers.json", R"({"prompts": {"query": "ask: "}, "default_prompt_name": "query"})");
  const auto encoder = model("embed", "encoder", {stack("encoder", true)});
  auto can = of(encoder);
  EXPECT_THAT(can.text.poolings, testing::ElementsAre(Pooling::First));
  EXPECT_FALSE(can.text.normalize);
  EXPECT_EQ(can.positions, 20);
  EXPECT_EQ(can.prompts.standard, "ask: ");
  EXPECT_TRUE(can.strip);
  modules(R"(, {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})");
  EXPECT_TRUE(of(encoder).text.normalize);
  write("1_Pooling/config.json", R"({"pooling_mode": "weightedmean"})");
  EXPECT_THAT(of(encoder).text.poolings, testing::ElementsAre(Pooling::WeightedMean));
  write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  EXPECT_THAT(of(encoder).text.poolings, testing::ElementsAre(Pooling::First, Pooling::Mean));
  write("modules.json", "{");
  EXPECT_THROW(of(encoder), Error);
}

TEST_F(AbilitiesOf, TheActivationOfACrossEncoderIsWhereItsVersionWroteIt) {
  const Model one = model("classify", "encoder", {stack("encoder", true)});
  EXPECT_EQ(of(one).rank_activation, "Sigmoid");
  write("config.json", R"({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Tanh"})");
  EXPECT_EQ(of(one).rank_activation, "Tanh");
  write("config.json", R"({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})");
  EXPECT_EQ(of(one).rank_activation, "Identity");
  write("config_sentence_transformers.json", R"({"activation_fn": "torch.nn.modules.activation.Sigmoid"})");
  EXPECT_EQ(of(one).rank_activation, "Identity") << "it belongs to modules.json";
  write("modules.json", R"([{"path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}])");
  EXPECT_EQ(of(one).rank_activation, "Sigmoid");
}

TEST_F(AbilitiesOf, LabelsAreThoseOfTheConfigInTheOrderOfTheirIds) {
  const auto encoder = model("classify", "encoder", {stack("encoder", true)});
  EXPECT_EQ(of(encoder).labels, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  write("config.json", R"({"id2label": {"10": "k", "0": "a", "1": "b", "2": "c"}, "problem_type": "regression"})");
  EXPECT_EQ(of(encoder).labels, (std::vector<std::string>{"a", "b", "c", "LABEL_3"}));
  EXPECT_EQ(of(encoder).problem_type, "regression");
  write("config.json", R"({"num_labels": 1, "problem_type": null})");
  EXPECT_EQ(of(encoder).labels, std::vector<std::string>{"LABEL_0"});
  write("config.json", R"({"problem_type": 4})");
  EXPECT_THROW(of(encoder), Error);
}

TEST_F(AbilitiesOf, HeadsTellWhereScoresAre) {
  auto mlm = head("mlm", "encoder", "", {"prediction_logits"});
  mlm.kind = policy::LogitsSpec{};
  const auto can = of(model("fill-mask", "encoder", {stack("encoder", true)},
                            {mlm, head("nsp", "encoder", "pooler", {"seq_relationship_logits"})}));
  EXPECT_EQ(can.vocabulary_scores, "prediction_logits");
  EXPECT_EQ(can.next_sentence, "seq_relationship_logits");
  EXPECT_TRUE(can.serves("/classify"));
  EXPECT_TRUE(can.serves("/fill-mask"));
  EXPECT_FALSE(can.serves("/v1/completions"));
}

TEST_F(AbilitiesOf, AModelMayGenerateBesideItsTask) {
  auto lm = head("lm", "encoder", "", {"logits"});
  lm.kind = policy::LogitsSpec{};
  Model both = model("fill-mask", "encoder", {stack("encoder", true)}, {lm});
  both.recompute.emplace();
  const auto can = of(both);
  for (const char* route : {"/fill-mask", "/v1/completions", "/v1/chat/completions", "/generate", "/v1/embeddings"})
    EXPECT_TRUE(can.serves(route)) << route;
  both.task = policy::Task::Forward;
  EXPECT_FALSE(of(both).serves("/v1/embeddings"));
  EXPECT_TRUE(of(both).serves("/v1/completions"));
}

TEST_F(AbilitiesOf, EveryTaskServesItsRouteAndForward) {
  Capabilities masks;
  masks.task = policy::Task::DetectObjects;
  EXPECT_FALSE(masks.serves("/segment"));
  masks.masks = "pred_masks";
  EXPECT_TRUE(masks.serves("/segment"));
  for (const auto& [task, route] : std::map<std::string, std::string>{{"generate", "/v1/completions"},
                                                                      {"embed", "/v1/embeddings"},
                                                                      {"similarity", "/similarity"},
                                                                      {"fill-mask", "/fill-mask"},
                                                                      {"classify", "/classify"},
                                                                      {"classify-tokens", "/classify"},
                                                                      {"classify-images", "/classify"},
                                                                      {"multiple-choice", "/classify"},
                                                                      {"detect-objects", "/detect"},
                                                                      {"question-answering", "/question-answering"}}) {
    Capabilities can;
    can.task = *policy::parse<policy::Task>(task);
    EXPECT_TRUE(can.serves(route)) << task;
    EXPECT_TRUE(can.serves("/forward")) << task;
    EXPECT_THAT(can.routes(), testing::Contains("POST /forward"));
  }
}

}  // namespace
}  // namespace pm::test
