// SPDX-License-Identifier: Apache-2.0
// Rerankers that are causal models: what their folder says, and /rerank and /score of them over a fake engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/unit/worker/server/support/task_test_server.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/server/serving/logit_score.h"

namespace pm::test {
namespace {

using server::LogitScore;
using testing::AllOf;
using testing::HasSubstr;

const char* const both_roles =
    "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}ran{% endif %}";

policy::Model causal() {
  policy::Model model;
  model.architecture = "TinyForCausalLM";
  model.task = policy::Task::Generate;
  model.kind = policy::ModelKind::Decoder;
  model.stacks.emplace_back().name = "decoder";
  policy::LogitsSpec logits;
  logits.linear.weight.shape = {12, 8};
  model.heads.emplace_back().kind = logits;
  return model;
}

struct LogitScoreFolder : testing::Test {
  LogitScoreFolder() {
    write("modules.json", modules);
    write("1_LogitScore/config.json", module);
    write("sentence_bert_config.json", transformer);
    write("chat_template.jinja", json(both_roles), true);
    write("config_sentence_transformers.json", {{"prompts", {{"web", "the"}}}, {"default_prompt_name", "web"}});
    write("tokenizer_config.json", {{"model_max_length", 40}});
  }
  void write(const std::string& name, const json& value, bool text = false) const {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << (text ? value.get<std::string>() : value.dump());
  }
  std::optional<LogitScore> read(const policy::Model& model = causal()) const {
    return server::read_logit_score(model, folder.path());
  }
  std::string refusal(const policy::Model& model = causal()) const {
    try {
      read(model);
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::ModelUnreadable);
      return error.what();
    }
    ADD_FAILURE() << "nothing was refused";
    return "";
  }
  /// Returns the refusal of a file with `value` in place of what its key has.
  std::string refusal_of(const std::string& file, json object, const std::string& key, const json& value) const {
    const json before = object;
    object[json::json_pointer(key)] = value;
    write(file, object);
    std::string found = refusal();
    write(file, before);
    return found;
  }

  const json modules =
      json::array({{{"idx", 0}, {"path", ""}, {"type", "sentence_transformers.base.modules.transformer.Transformer"}},
                   {{"idx", 1},
                    {"path", "1_LogitScore"},
                    {"type", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}}});
  const json module = {{"true_token_id", 6}, {"false_token_id", 8}, {"module_input_name", "causal_logits"}};
  const json mode = {{"method", "forward"}, {"method_output_name", "logits"}};
  const json transformer = {
      {"transformer_task", "text-generation"},
      {"modality_config",
       {{"text", mode}, {"message", {{"method", "forward"}, {"method_output_name", "logits"}, {"format", "flat"}}}}},
      {"module_output_name", "causal_logits"},
      {"processing_kwargs", {{"chat_template", {{"add_generation_prompt", true}, {"thinks", false}}}}}};
  TempFolder folder;
};

TEST_F(LogitScoreFolder, SaysTokensInstructionsAndMessages) {
  const auto score = read();
  ASSERT_TRUE(score);
  EXPECT_EQ(score->true_token, 6);
  EXPECT_EQ(score->false_token, 8);
  EXPECT_EQ(score->prompts.standard, "the");
  EXPECT_EQ(score->max_tokens, 40);
  EXPECT_FALSE(score->truncates_start);
  ASSERT_TRUE(score->messages);
  EXPECT_FALSE(score->messages->parts);
  EXPECT_TRUE(score->messages->restores_suffix);
  EXPECT_EQ(score->messages->kwargs, json({{"thinks", false}}));
  EXPECT_EQ(score->messages->render("the", "cat", "dog", 0), "the cat dog ran");
  EXPECT_EQ(score->messages->render("", "cat", "dog", 0), "cat dog ran");
}

TEST_F(LogitScoreFolder, MayHaveOneTokenAndTextsWithoutMessages) {
  write("1_LogitScore/config.json", {{"true_token_id", 0}, {"false_token_id", nullptr}});
  json plain = transformer;
  plain["modality_config"].erase("message");
  plain["max_seq_length"] = 30;
  plain["unpad_inputs"] = true;  // without effect
  write("sentence_bert_config.json", plain);
  const auto score = read();
  EXPECT_EQ(score->true_token, 0);
  EXPECT_FALSE(score->false_token);
  EXPECT_FALSE(score->messages);
  EXPECT_EQ(score->max_tokens, 30);
  plain["processing_kwargs"]["text"] = {{"max_length", 20}};
  write("sentence_bert_config.json", plain);
  EXPECT_EQ(read()->max_tokens, 20);
  write("tokenizer_config.json", {{"truncation_side", "left"}});
  EXPECT_THAT(refusal(), HasSubstr("truncation_side left"));
}

TEST_F(LogitScoreFolder, OfAnotherKindHasNone) {
  write("modules.json", json::array({modules[0]}));
  EXPECT_FALSE(read());
  std::filesystem::remove(folder.path() / "modules.json");
  EXPECT_FALSE(read());
}

TEST_F(LogitScoreFolder, ModulesThatAreNotServedAreRefused) {
  json more = modules;
  more.push_back({{"path", "2_Dense"}, {"type", "sentence_transformers.base.modules.dense.Dense"}});
  write("modules.json", more);
  EXPECT_THAT(refusal(), HasSubstr("2_Dense"));
  write("modules.json", json::array({modules[1], modules[0]}));
  EXPECT_THAT(refusal(), HasSubstr("behind it"));
  more = modules;
  more[0]["path"] = "0_Transformer";
  write("modules.json", more);
  EXPECT_THAT(refusal(), HasSubstr("0_Transformer"));
  more = modules;
  more[1]["path"] = "../other";
  write("modules.json", more);
  EXPECT_THAT(refusal(), HasSubstr("../other"));
}

TEST_F(LogitScoreFolder, NeedsAModelThatScoresItsVocabulary) {
  policy::Model other = causal();
  other.task = policy::Task::Embed;
  EXPECT_THAT(refusal(other), AllOf(HasSubstr("TinyForCausalLM"), HasSubstr("LogitScore")));
  other = causal();
  other.heads.clear();
  EXPECT_THAT(refusal(other), HasSubstr("no decoder"));
  other = causal();
  other.stacks.emplace_back().name = "vision";
  EXPECT_THAT(refusal(other), HasSubstr("no decoder"));
}

TEST_F(LogitScoreFolder, OptionsOfTheModuleAreRefusedByName) {
  const std::string file = "1_LogitScore/config.json";
  EXPECT_THAT(refusal_of(file, module, "/true_token_id", 12),
              AllOf(HasSubstr("true_token_id 12"), HasSubstr("0 to 11")));
  EXPECT_THAT(refusal_of(file, module, "/false_token_id", -1), HasSubstr("false_token_id -1"));
  EXPECT_THAT(refusal_of(file, module, "/false_token_id", "no"), HasSubstr("false_token_id \"no\""));
  EXPECT_THAT(refusal_of(file, module, "/true_token_id", nullptr), HasSubstr("no true_token_id"));
  EXPECT_THAT(refusal_of(file, module, "/module_input_name", "scores"), HasSubstr("module_input_name scores"));
  EXPECT_THAT(refusal_of(file, module, "/scale", 5), HasSubstr("scale"));
  std::filesystem::remove(folder.path() / file);
  EXPECT_THAT(refusal(), HasSubstr("1_LogitScore/config.json is missing"));
}

TEST_F(LogitScoreFolder, OptionsOfTheTransformerAreRefusedByName) {
  const std::vector<std::tuple<std::string, json, std::string>> options{
      {"/transformer_task", "any-to-any", "any-to-any"},
      {"/module_output_name", "scores", "module_output_name scores"},
      {"/modality_config/text/method", "encode", "modality_config.text"},
      {"/modality_config/message/method_output_name", {"hidden_states", 3}, "modality_config.message"},
      {"/modality_config/message/format", "auto", "format \"auto\""},
      {"/modality_config", json::object(), "neither message nor text"},
      {"/do_lower_case", true, "do_lower_case"},
      {"/model_kwargs", {{"dtype", "float16"}}, "model_kwargs"},
      {"/new_option", 3, "new_option"},
      {"/processing_kwargs/common", {{"padding_side", "right"}}, "common"},
      {"/processing_kwargs/other", 1, "other"},
      {"/processing_kwargs/text", {{"truncation", "only_second"}}, "truncation"},
      {"/processing_kwargs/chat_template/tools", {"a"}, "tools"},
      {"/processing_kwargs/chat_template/max_length", 5, "max_length"},
  };
  for (const auto& [key, value, words] : options)
    EXPECT_THAT(refusal_of("sentence_bert_config.json", transformer, key, value), HasSubstr(words)) << key;
  std::filesystem::remove(folder.path() / "sentence_bert_config.json");
  EXPECT_THAT(refusal(), HasSubstr("sentence_bert_config.json is missing"));
}

TEST_F(LogitScoreFolder, ChatTemplatesHaveToShowBothTexts) {
  const auto refusal_of_template = [&](const char* text) {
    write("chat_template.jinja", text, true);
    return refusal();
  };
  EXPECT_THAT(refusal_of_template("{{ messages[0].content }}"), HasSubstr("document"));
  EXPECT_THAT(refusal_of_template("{{ messages[1].content }}"), HasSubstr("query"));
  EXPECT_THAT(refusal_of_template("{{ raise_exception('no role ' + messages[0].role) }}"), HasSubstr("no role query"));
  std::filesystem::remove(folder.path() / "chat_template.jinja");
  EXPECT_THAT(refusal(), HasSubstr("no chat template"));
}

/// The logits of a token behind a row: those of its id, times the last token of the row.
Arrays last_logits(const engine::ForwardRequest& request) {
  EXPECT_EQ(request.outputs, std::vector<std::string>{"last_logits"});
  const auto& shape = request.inputs.at("input_ids").shape;
  const auto& mask = std::get<std::vector<int64_t>>(request.inputs.at("attention_mask").values);
  std::vector<float> logits;
  for (int64_t row = 0; row < shape[0]; ++row) {
    const auto begin = mask.begin() + row * shape[1];
    const auto last = ids_of(request)[static_cast<size_t>(row * shape[1] + std::count(begin, begin + shape[1], 1) - 1)];
    for (int64_t id = 0; id < 12; ++id) logits.push_back(static_cast<float>(id * last) / 10);
  }
  return {{"last_logits", floats({shape[0], 12}, logits)}};
}

struct LogitScoreRoutes : LogitScoreFolder {
  server::Capabilities can(const std::string& activation = "Identity") const {
    auto made = capabilities_of("generate");
    made.kind = policy::ModelKind::Decoder;
    made.scores = 12;
    made.rank_activation = activation;
    made.logit_score = std::make_shared<LogitScore>(*read());
    return made;
  }
};

TEST_F(LogitScoreRoutes, ScoreIsTheDifferenceOfTwoLogitsBehindThePrompt) {
  TaskTestServer tasked(can());
  tasked.engine.answer_forward(last_logits);
  const auto reply = tasked.ask("/score", {{"queries", "cat"}, {"documents", {"dog", "sat sat"}}});
  EXPECT_NEAR(reply["data"][0]["score"].get<double>(), (6 - 8) * ran_id / 10., 1e-6);
  EXPECT_EQ(ids_of(tasked.engine.forward_requests()[0]),
            (std::vector<int64_t>{the_id, cat_id, dog_id, ran_id, 0, the_id, cat_id, sat_id, sat_id, ran_id}));
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 9);

  write("1_LogitScore/config.json", {{"true_token_id", 7}});
  TaskTestServer sigmoids(can("Sigmoid"));
  sigmoids.engine.answer_forward(last_logits);
  const auto ranked = sigmoids.ask("/rerank", {{"query", "cat"}, {"documents", {"dog"}}});
  EXPECT_NEAR(ranked["results"][0]["relevance_score"].get<double>(), 1 / (1 + std::exp(-7 * ran_id / 10.)), 1e-6);
}

TEST_F(LogitScoreRoutes, InstructionsAreChosenByNameOrWritten) {
  TaskTestServer tasked(can());
  tasked.engine.answer_forward(last_logits);
  const json pair{{"query", "cat"}, {"documents", {"dog"}}};
  const auto first_id = [&](const char* field, const json& value) {
    json body = pair;
    body[field] = value;
    tasked.ask("/rerank", body);
    return ids_of(tasked.engine.forward_requests().back())[0];
  };
  EXPECT_EQ(first_id("prompt_name", "web"), the_id);
  EXPECT_EQ(first_id("prompt", "sat"), sat_id);
  EXPECT_EQ(first_id("prompt", ""), cat_id);
  json body = pair;
  body["prompt_name"] = "none";
  EXPECT_THAT(error_of(tasked.post("/rerank", body), 400)["message"].get<std::string>(), HasSubstr("web"));
  body["prompt"] = "the";
  EXPECT_THAT(error_of(tasked.post("/rerank", body), 400)["message"].get<std::string>(), HasSubstr("exclude"));
}

TEST_F(LogitScoreRoutes, LongPromptsAreRefusedOrKeepTheirEnd) {
  TaskTestServer tasked(can());
  tasked.engine.answer_forward(last_logits);
  std::string words = "dog";
  for (int i = 0; i < 20; ++i) words += " cat";
  json body{{"query", "sat"}, {"documents", {"dog", words}}};
  EXPECT_EQ(error_of(tasked.post("/rerank", body), 413)["param"], "documents[1]");
  body["truncate"] = true;
  tasked.ask("/rerank", body);
  const auto& ids = ids_of(tasked.engine.forward_requests().back());
  ASSERT_EQ(ids.size(), 32u) << "two rows of at most 16 tokens, which the model takes";
  EXPECT_EQ(ids[31], ran_id);
  EXPECT_EQ(ids[28], cat_id) << "numbers are one unknown word here, so that two of them belong to the suffix";
  EXPECT_EQ(ids[16], the_id);
}

TEST_F(LogitScoreRoutes, ManyPairsGoInBatchesOfFewScores) {
  auto many = can();
  many.scores = int64_t{1} << 22;
  TaskTestServer tasked(many);
  tasked.engine.answer_forward(last_logits);
  const auto reply = tasked.ask("/score", {{"queries", "cat"}, {"documents", std::vector<std::string>(5, "dog")}});
  EXPECT_EQ(reply["data"].size(), 5u);
  EXPECT_EQ(tasked.engine.forward_requests().size(), 3u);
}

}  // namespace
}  // namespace pm::test
