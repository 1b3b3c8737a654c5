// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using engine::GenerationConfig;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

CompletionRequest parsed(const std::string& body) {
  UnknownFields strict(true);
  return parse_completion(body, {"m"}, strict);
}

ApiError refused(const std::string& body) {
  try {
    parsed(body);
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << body.substr(0, 200);
  return ApiError(0, "", "");
}

ApiError refused_field(json fields) {
  if (!fields.contains("prompt")) fields["prompt"] = "a";
  return refused(fields.dump());
}

TEST(CompletionRequest, EveryFieldIsRead) {
  const auto request = parsed(
      R"({"model": "m", "prompt": ["a", "b"], "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 3, "seed": -1,
    "stop": ["x", "y"], "stream": true, "stream_options": {"include_usage": true}, "ignore_eos": true, "return_token_ids": true, "user": "me", "include_usage": true,
    "min_p": 0.125, "presence_penalty": -1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.25, "min_tokens": 4, "typical_p": 0.75,
    "no_repeat_ngram_size": 3, "bad_words_ids": [[1, 2], [3]], "max_time": 2.5, "n": 3, "best_of": 3, "echo": true})");
  const auto sampling = make_sampling(request.params, {}, 0, nullptr);
  const engine::ParameterValues& values = request.params.values;
  EXPECT_EQ(sampling.typical_p, 0.75);
  EXPECT_EQ(sampling.no_repeat_ngram_size, 3);
  EXPECT_EQ(sampling.bad_words, (std::vector<std::vector<int32_t>>{{1, 2}, {3}}));
  EXPECT_EQ(values.get(&GenerationConfig::max_time), 2.5);
  EXPECT_EQ(request.n, 3);
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(sampling.min_p, 0.125);
  EXPECT_EQ(sampling.presence_penalty, -1.5);
  EXPECT_EQ(sampling.frequency_penalty, 0.5);
  EXPECT_EQ(sampling.repetition_penalty, 1.25);
  EXPECT_EQ(sampling.min_new_tokens, 4);
  EXPECT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(values.get(&GenerationConfig::max_new_tokens), 7);
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_p, 0.25);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_THAT(request.params.stop, testing::ElementsAre("x", "y"));
  EXPECT_EQ(values.get(&GenerationConfig::ignore_eos), true);
  EXPECT_TRUE(request.stream && request.include_usage && request.return_token_ids);
}

TEST(CompletionRequest, NullCountsAsAbsentAndNeutralValuesOfUnsupportedFieldsAreAccepted) {
  const auto request = parsed(
      R"({"prompt": "a", "max_tokens": null, "temperature": null, "stop": null, "n": 1, "best_of": 1, "echo": false,
    "logprobs": null, "suffix": null, "presence_penalty": null, "logit_bias": {}})");
  EXPECT_FALSE(request.params.values.has(&GenerationConfig::max_new_tokens));
  EXPECT_FALSE(request.params.values.has(&engine::SamplingParams::temperature));
  EXPECT_EQ(request.logprobs, -1);
}

TEST(CompletionRequest, AnInvalidValueIsNamedWithTheAllowedOnes) {
  const struct {
    json fields;
    const char* param;
    const char* found;
    const char* allowed;
  } cases[] = {
      {{{"max_tokens", -1}}, "max_tokens", "-1", "from 1"},
      {{{"max_tokens", "5"}}, "max_tokens", "\"5\"", "integer"},
      {{{"max_tokens", 1.5}}, "max_tokens", "1.5", "integer"},
      {{{"max_tokens", UINT64_MAX}}, "max_tokens", "18446744073709551615", "integer"},
      {{{"temperature", -0.1}}, "temperature", "-0.1", "from 0 to 2"},
      {{{"temperature", 2.5}}, "temperature", "2.5", "from 0 to 2"},
      {{{"temperature", true}}, "temperature", "true", "number"},
      {{{"top_p", 0}}, "top_p", "0", "above 0 to 1"},
      {{{"top_k", -2}}, "top_k", "-2", "from -1"},
      {{{"n", 0}}, "n", "0", "from 1 to 128"},
      {{{"n", 2}, {"best_of", 1}}, "best_of", "1", "at least 2, the value of n"},
      {{{"prompt_logprobs", 21}}, "prompt_logprobs", "21", "from 0 to 20"},
      {{{"logprobs", 21}}, "logprobs", "21", "from 0 to 20"},
      {{{"logprobs", true}}, "logprobs", "true", "integer"},
      {{{"logit_bias", json::array({1})}}, "logit_bias", "array of 1", "object of at most 1024"},
      {{{"logit_bias", {{"five", 1}}}}, "logit_bias", "five", "token ids"},
      {{{"logit_bias", {{"-5", 1}}}}, "logit_bias", "-5", "token ids"},
      {{{"logit_bias", {{"5", "1"}}}}, "logit_bias[5]", "\"1\"", "from -100 to 100"},
      {{{"logit_bias", {{"5", 100.5}}}}, "logit_bias[5]", "100.5", "from -100 to 100"},
      {{{"suffix", "x"}}, "suffix", "x", "null"},
      {{{"typical_p", 0}}, "typical_p", "0", "above 0 to 1"},
      {{{"max_time", 0}}, "max_time", "0", "above 0"},
      {{{"bad_words", json::array({""})}}, "bad_words", "\"\"", "none of them empty"},
      {{{"bad_words_ids", json::array({1})}}, "bad_words_ids[0]", "1", "array of token ids"},
      {{{"bad_words_ids", json::array({json::array()})}}, "bad_words_ids[0]", "array of 0", "at least one"},
      {{{"presence_penalty", 2.5}}, "presence_penalty", "2.5", "from -2 to 2"},
      {{{"frequency_penalty", "much"}}, "frequency_penalty", "\"much\"", "number"},
      {{{"repetition_penalty", 0}}, "repetition_penalty", "0", "above 0"},
      {{{"min_p", 1.5}}, "min_p", "1.5", "from 0 to 1"},
      {{{"min_tokens", -1}}, "min_tokens", "-1", "from 0"},
      {{{"stream", "yes"}}, "stream", "\"yes\"", "true or false"},
      {{{"stop", ""}}, "stop", "\"\"", "none of them empty"},
      {{{"stop", json::array({1})}}, "stop", "1", "strings"},
      {{{"stream", true}, {"stream_options", 1}}, "stream_options", "1", "include_usage"},
      {{{"prompt", 5}}, "prompt", "5", "array of strings"},
      {{{"prompt", json::array()}}, "prompt", "array of 0", "array of strings"},
      {{{"prompt", json::array({"a", 1})}}, "prompt[1]", "1", "same kind"},
      {{{"prompt", json::array({1, "a"})}}, "prompt[1]", "\"a\"", "token id"},
      {{{"prompt", json::array({-1})}}, "prompt[0]", "-1", "token id"},
      {{{"prompt", json::array({json::array({1}), json::array()})}}, "prompt[1]", "array of 0", "at least one"},
      {{{"prompt", json::array({true})}}, "prompt[0]", "true", "array of strings"},
  };
  for (const auto& c : cases) {
    const auto error = refused_field(c.fields);
    EXPECT_EQ(error.status, 400) << c.fields;
    EXPECT_EQ(error.param, c.param) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr(c.param), HasSubstr(c.found), HasSubstr(c.allowed)));
  }
}

TEST(CompletionRequest, AnUnknownFieldIsIgnoredAndItsNameIsKnown) {
  UnknownFields unknown(false);
  const auto request = parse_completion(
      R"({"prompt": "a", "max_token": 5, "stream": true, "stream_options": {"x": 1}})", {"m"}, unknown);
  EXPECT_FALSE(request.params.values.has(&GenerationConfig::max_new_tokens));
  EXPECT_THAT(unknown.names(), testing::UnorderedElementsAre("max_token", "stream_options.x"));
}

TEST(CompletionRequest, FieldsOfOtherServersThatWouldChangeTheAnswerAreRefusedNotIgnored) {
  for (const UnsupportedField& one : unsupported_fields()) {
    const auto error = refused_field({{one.name, json::array({1})}});
    EXPECT_EQ(error.code, "invalid_value");
    EXPECT_EQ(error.param, one.name);
    EXPECT_THAT(error.what(), HasSubstr(one.advice));
  }
}

TEST(CompletionRequest, AStrictRequestIsRefusedForAnUnknownFieldWithTheKnownOnes) {
  const auto error = refused_field(json{{"max_token", 5}});
  EXPECT_EQ(error.code, "unknown_field");
  EXPECT_EQ(error.param, "max_token");
  EXPECT_THAT(error.what(), HasSubstr("the nearest is max_tokens;"));
  EXPECT_EQ(refused_field(json{{"stream", true}, {"stream_options", {{"x", 1}}}}).param, "stream_options.x");
}

TEST(CompletionRequest, WhatIsKnownAtTheEndIsNotStreamed) {
  EXPECT_EQ(refused_field({{"stream", true}, {"prompt_logprobs", 1}}).param, "prompt_logprobs");
  EXPECT_EQ(refused_field({{"stream", true}, {"best_of", 2}}).param, "best_of");
}

TEST(CompletionRequest, AnEchoHasTheLogprobsOfItsTokens) {
  EXPECT_EQ(parsed(R"({"prompt": "a", "echo": true, "logprobs": 1})").params.prompt_logprobs, 1);
  EXPECT_EQ(parsed(R"({"prompt": "a", "echo": true})").params.prompt_logprobs, -1);
  EXPECT_EQ(parsed(R"({"prompt": "a", "logprobs": 1})").params.prompt_logprobs, -1);
  EXPECT_EQ(parsed(R"({"prompt": "a", "echo": true, "logprobs": 1, "prompt_logprobs": 3})").params.prompt_logprobs, 3);
}

TEST(Fields, TheNearestNameIsFoundOrNone) {
  const std::vector<std::string> known{"num_beams", "max_length", "top_k", "top_p"};
  EXPECT_EQ(nearest_name("num_beam", known), "num_beams");
  EXPECT_EQ(nearest_name("maxlength", known), "max_length");
  EXPECT_EQ(nearest_name("topp", known), "top_p");
  EXPECT_EQ(nearest_name("frobnicate", known), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), known), "");
}

TEST(CompletionRequest, AMissingPromptIsNamed) { EXPECT_EQ(refused("{}").param, "prompt"); }

TEST(CompletionRequest, InvalidBodiesAreRefused) {
  const std::string deep(500'000, '['), deep_object = [] {
    std::string s;
    for (int i = 0; i < 100'000; ++i) s += "{\"a\":";
    return s;
  }();
  for (const std::string& body : {std::string(), std::string("nonsense"), std::string("[1]"), std::string("\"a\""),
                                  std::string("{\"prompt\": \"a\"} x"), std::string("{\"prompt\": \"a\xC3\"}"),
                                  std::string("{\"prompt\": \"\\ud800\"}"), std::string("\0\0", 2), deep, deep_object,
                                  "{\"prompt\": " + deep, std::string("{\"max_tokens\": 1e999}")}) {
    const auto error = refused(body);
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.code, "invalid_json") << error.what();
    EXPECT_LT(std::string(error.what()).size(), 300u);
  }
}

TEST(CompletionRequest, AHugeValueIsNotRepeatedInTheError) {
  EXPECT_LT(std::string(refused_field(json{{"stream", std::string(100'000, 'x')}}).what()).size(), 200u);
  EXPECT_LT(std::string(refused_field(json{{std::string(100'000, 'x'), 1}}).what()).size(), 800u);
}

}  // namespace
}  // namespace pm::server
