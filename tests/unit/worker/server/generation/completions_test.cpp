// SPDX-License-Identifier: Apache-2.0
// Tests POST /v1/completions over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/worker/server/support/api_test_server.h"

namespace pm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

json body_of(const httplib::Result& result) {
  EXPECT_TRUE(result) << httplib::to_string(result.error());
  if (!result) return json::object();
  EXPECT_EQ(result->status, 200) << result->body;
  EXPECT_FALSE(result->get_header_value("x-request-id").empty());
  return json::parse(result->body);
}

std::string message_of(const json& error) { return error.value("message", ""); }

TEST(Completions, ReplyHasOpenAisFormatAndCountsTokens) {
  ApiTestServer served;
  const auto body = body_of(served.post({{"model", "org/tiny"}, {"prompt", "abc"}, {"max_tokens", 5}}));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "org/tiny");
  EXPECT_EQ(body["created"], 1700000000);
  EXPECT_THAT(body["id"].get<std::string>(), testing::StartsWith("cmpl-"));
  ASSERT_EQ(body["choices"].size(), 1u);
  EXPECT_EQ(body["choices"][0],
            json({{"index", 0}, {"text", "abcab"}, {"logprobs", nullptr}, {"finish_reason", "length"}}));
  EXPECT_EQ(body["usage"], json({{"prompt_tokens", 3},
                                 {"completion_tokens", 5},
                                 {"total_tokens", 8},
                                 {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
}

TEST(Completions, SeveralChoicesPerPromptAreInTheOrderOfThePrompts) {
  ApiTestServer served;
  served.engine.set_cached_tokens(2);
  const auto body = body_of(served.post({{"prompt", {"abc", "xyz"}}, {"max_tokens", 3}, {"n", 2}}));
  ASSERT_EQ(body["choices"].size(), 4u);
  const char* texts[] = {"abc", "bca", "xyz", "yzx"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(body["usage"], json({{"prompt_tokens", 6},
                                 {"completion_tokens", 12},
                                 {"total_tokens", 18},
                                 {"prompt_tokens_details", {{"cached_tokens", 4}}}}));
  ASSERT_EQ(served.engine.submitted_requests().size(), 2u);
  EXPECT_EQ(served.engine.submitted_requests()[1].search, (engine::SearchParams{.num_return_sequences = 2}));
}

TEST(Completions, AStopStringInOneChoiceDoesNotEndTheOthers) {
  ApiTestServer served;  // answers "abcabc..." and "bcabca..."
  const auto body = body_of(served.post({{"prompt", "abc"}, {"max_tokens", 9}, {"n", 2}, {"stop", "abca"}}));
  EXPECT_EQ(body["choices"][0]["text"], "");
  EXPECT_EQ(body["choices"][1]["text"], "bc");
  EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; }));
}

TEST(Completions, LogprobsAreOpenAisListsAndOffsetsCountCharacters) {
  ApiTestServer served;
  const auto choice = body_of(served.post({{"prompt", "a\u4e16b"}, {"max_tokens", 5}, {"logprobs", 2}}))["choices"][0];
  EXPECT_EQ(choice["text"], "a\u4e16b");
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"a", "\uFFFD", "\uFFFD", "\uFFFD", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.25, -0.25, -0.25, -0.25, -0.25}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1, 1, 1, 2}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"a", -0.25}, {"b", -1.25}}));
  const auto none =
      body_of(served.post({{"prompt", "ab"}, {"max_tokens", 1}, {"logprobs", 0}}))["choices"][0]["logprobs"];
  EXPECT_EQ(none["top_logprobs"][0], json({{"a", -0.25}})) << "top_logprobs always includes the token itself";
  EXPECT_EQ(served.engine.submitted_requests()[1].logprobs, 0);
  EXPECT_EQ(body_of(served.post({{"prompt", "ab"}, {"max_tokens", 1}}))["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(served.engine.submitted_requests()[2].logprobs, -1);
}

TEST(Completions, EchoPutsThePromptBeforeEachAnswer) {
  ApiTestServer served;
  const auto body = body_of(served.post({{"prompt", {"ab", "cd"}}, {"max_tokens", 2}, {"n", 2}, {"echo", true}}));
  EXPECT_EQ(body["choices"][0]["text"], "abab");
  EXPECT_EQ(body["choices"][1]["text"], "abba");
  EXPECT_EQ(body["choices"][2]["text"], "cdcd");
  EXPECT_EQ(body_of(served.post({{"prompt", {97, 98}}, {"max_tokens", 2}, {"echo", true}}))["choices"][0]["text"],
            "abab");
}

TEST(Completions, AnEchoedPromptHasItsLogprobsBeforeThoseOfTheAnswer) {
  ApiTestServer served;
  const json request{{"prompt", "a\u4e16b"}, {"max_tokens", 1}, {"logprobs", 2}, {"echo", true}, {"n", 2}};
  const auto body = body_of(served.post(request));
  EXPECT_EQ(served.engine.submitted_requests().at(0).prompt_logprobs, 2);
  ASSERT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][0]["text"], "a\u4e16ba");
  const json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"a", "\uFFFD", "\uFFFD", "\uFFFD", "b", "a"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({nullptr, -1, -2, -3, -4, -0.25}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1, 1, 1, 2, 3}));
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][4], json({{"0", 0}, {"1", -0.5}, {"b", -4}}));
  EXPECT_EQ(logprobs["top_logprobs"][5], json({{"a", -0.25}, {"b", -1.25}}));
  EXPECT_EQ(body["choices"][1]["logprobs"]["tokens"][0], "a");
}

TEST(Completions, OfNoTokensHaveThePromptOnly) {
  ApiTestServer served;
  const auto body = body_of(
      served.post({{"prompt", "ab"}, {"max_tokens", 0}, {"logprobs", 0}, {"echo", true}, {"return_token_ids", true}}));
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["token_ids"], json::array());
  EXPECT_EQ(choice["logprobs"]["tokens"], json({"a", "b"}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], json({{"b", -1}}));
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(body["usage"]["total_tokens"], 2);
  EXPECT_EQ(body_of(served.post({{"prompt", "ab"}, {"max_tokens", 0}}))["choices"][0]["text"], "");
}

TEST(Completions, PromptLogprobsAreVllmsObjectsByTokenId) {
  ApiTestServer served;
  const auto choice = body_of(served.post(
      {{"prompt", "ab"}, {"max_tokens", 1}, {"prompt_logprobs", 1}, {"logprobs", 3}, {"echo", true}}))["choices"][0];
  EXPECT_EQ(served.engine.submitted_requests().at(0).prompt_logprobs, 3) << "echo names more alternatives";
  EXPECT_EQ(choice["prompt_logprobs"], json({nullptr,
                                             {{"98", {{"logprob", -1}, {"rank", 2}, {"decoded_token", "b"}}},
                                              {"48", {{"logprob", 0}, {"rank", 1}, {"decoded_token", "0"}}}}}));
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 4u);
  const auto plain = body_of(served.post({{"prompt", "ab"}, {"max_tokens", 1}}))["choices"][0];
  EXPECT_FALSE(plain.contains("prompt_logprobs"));
  EXPECT_EQ(served.engine.submitted_requests().at(1).prompt_logprobs, -1);
}

TEST(Completions, BestOfReturnsTheLikeliestOfMore) {
  ApiTestServer served;  // sequence s answers with the letter s + 1 of the prompt
  served.engine.prefer('b', -3);
  served.engine.prefer('c', -0.125);
  const auto body = body_of(served.post({{"prompt", {"abc", "xyz"}}, {"max_tokens", 1}, {"n", 2}, {"best_of", 3}}));
  EXPECT_EQ(served.engine.submitted_requests().at(0).search.num_return_sequences, 3);
  std::string texts;
  for (size_t i = 0; i < body["choices"].size(); ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["logprobs"], nullptr);
    texts += body["choices"][i]["text"];
  }
  EXPECT_EQ(texts, "caxy") << "equally likely ones in their order";
  EXPECT_EQ(body["usage"]["completion_tokens"], 6) << "all that were generated";
}

TEST(Completions, BadWordsAreBannedAsWordsAndWithinWords) {
  ApiTestServer served;
  body_of(served.post(
      {{"prompt", "ab"}, {"max_tokens", 1}, {"bad_words", {"no"}}, {"bad_words_ids", {{7}}}, {"max_time", 1.5}}));
  const auto request = served.engine.submitted_requests().at(0);
  EXPECT_EQ(request.sampling.bad_words, (std::vector<std::vector<int32_t>>{{7}, {'n', 'o'}, {' ', 'n', 'o'}}));
  EXPECT_EQ(request.max_time, 1.5);
  ApiTestServer without({}, {}, false);
  EXPECT_EQ(error_of(without.post({{"prompt", {97}}, {"bad_words", "no"}}), 400)["param"], "bad_words");
}

TEST(Completions, MaxTokensIsSixteenByDefaultAndLimitedByTheContextWindow) {
  ApiTestServer served;
  EXPECT_EQ(body_of(served.post({{"prompt", "a"}}))["usage"]["completion_tokens"], 16);
  EXPECT_EQ(body_of(served.post({{"prompt", std::string(60, 'a')}}))["usage"]["completion_tokens"], 4);
  EXPECT_EQ(body_of(served.post({{"prompt", std::string(60, 'a')}, {"max_tokens", 4}}))["usage"]["completion_tokens"],
            4);
}

TEST(Completions, PromptsMayBeOneOrManyTextsOrTokenIds) {
  ApiTestServer served;
  for (const json& prompt : {json("ab"), json::array({97, 98}), json{json::array({97, 98})}}) {
    const auto body = body_of(served.post({{"prompt", prompt}, {"max_tokens", 3}}));
    EXPECT_EQ(body["choices"][0]["text"], "aba") << prompt;
  }
  const auto body = body_of(served.post({{"prompt", {"ab", "cd", "ef"}}, {"max_tokens", 3}}));
  ASSERT_EQ(body["choices"].size(), 3u);
  EXPECT_EQ(body["choices"][0]["text"], "aba");
  EXPECT_EQ(body["choices"][1]["text"], "cdc");
  EXPECT_EQ(body["choices"][2]["text"], "efe");
  EXPECT_EQ(body["choices"][2]["index"], 2);
  EXPECT_EQ(body["usage"]["total_tokens"], 15);
}

TEST(Completions, AnEndTokenIsNotShownAndIgnoreEosContinues) {
  ApiTestServer served([](const engine::Request&, int64_t step) { return step == 2 ? end_id : 'x'; });
  const auto body = body_of(served.post({{"prompt", "a"}, {"max_tokens", 5}}));
  EXPECT_EQ(body["choices"][0]["text"], "xx");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(
      body_of(served.post({{"prompt", "a"}, {"max_tokens", 5}, {"ignore_eos", true}}))["choices"][0]["finish_reason"],
      "length");
}

TEST(Completions, AStopStringEndsTheAnswerBeforeItAndCancelsTheRest) {
  ApiTestServer served;
  const auto body = body_of(served.post({{"prompt", "abcd"}, {"max_tokens", 40}, {"stop", {"zz", "da"}}}));
  EXPECT_EQ(body["choices"][0]["text"], "abc");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; }));
}

TEST(Completions, TemperatureOverridesTheModelsDefault) {
  ApiTestServer greedy;
  body_of(greedy.post({{"prompt", "a"}, {"max_tokens", 1}}));
  EXPECT_FALSE(greedy.engine.submitted_requests()[0].sampling.do_sample);

  ApiTestServer sampling({}, [](auto& options) {
    options.defaults.config.sampling = {.do_sample = true, .temperature = 0.6, .top_k = 50, .top_p = 0.9};
    options.random = [] { return uint64_t{77}; };
  });
  body_of(sampling.post({{"prompt", {"a", "b"}}, {"max_tokens", 1}}));
  body_of(sampling.post({{"prompt", "a"}, {"max_tokens", 1}, {"temperature", 0}}));
  body_of(sampling.post(
      {{"prompt", "a"}, {"max_tokens", 1}, {"temperature", 1.5}, {"top_p", 0.5}, {"top_k", -1}, {"seed", 5}}));
  const auto seen = sampling.engine.submitted_requests();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_TRUE(seen[0].sampling.do_sample);
  EXPECT_EQ(seen[0].sampling.top_k, 50);
  EXPECT_EQ(seen[0].sampling.seed, 77u);
  EXPECT_EQ(seen[1].sampling.seed, 78u);  // each prompt of a request has its own seed
  EXPECT_FALSE(seen[2].sampling.do_sample);
  EXPECT_TRUE(seen[3].sampling.do_sample);
  EXPECT_EQ(seen[3].sampling.temperature, 1.5);
  EXPECT_EQ(seen[3].sampling.top_p, 0.5);
  EXPECT_EQ(seen[3].sampling.top_k, 0);
  EXPECT_EQ(seen[3].sampling.seed, 5u);
}

TEST(Completions, TokenIdsAreReturnedOnRequestOrWithoutATokenizer) {
  ApiTestServer served;
  EXPECT_EQ(body_of(served.post(
                {{"prompt", "ab"}, {"max_tokens", 3}, {"return_token_ids", true}}))["choices"][0]["token_ids"],
            json({97, 98, 97}));
  ApiTestServer without({}, {}, false);
  const auto body = body_of(without.post({{"prompt", {97, 98}}, {"max_tokens", 3}}));
  EXPECT_EQ(body["choices"][0]["token_ids"], json({97, 98, 97}));
  EXPECT_THAT(message_of(error_of(without.post({{"prompt", "ab"}}), 400)), HasSubstr("no tokenizer that is served"));
  EXPECT_THAT(message_of(error_of(without.get("/generate_text/ab"), 400)), HasSubstr("no tokenizer that is served"));
}

TEST(Completions, APromptBeyondTheContextWindowIsRefusedWithTheNumbers) {
  ApiTestServer served;
  const auto error = error_of(served.post({{"prompt", "abcd"}, {"max_tokens", 61}}), 400);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "max_tokens");
  EXPECT_THAT(message_of(error),
              AllOf(HasSubstr("4 tokens"), HasSubstr("61"), HasSubstr("64"), HasSubstr("at most 60")));
  EXPECT_THAT(message_of(error_of(served.post({{"prompt", std::string(64, 'a')}}), 400)),
              AllOf(HasSubstr("64 tokens"), HasSubstr("at least one more")));
  EXPECT_TRUE(served.engine.submitted_requests().empty());
}

TEST(Completions, ARefusalOfTheEngineIsABadRequest) {
  ApiTestServer served;
  EXPECT_THAT(message_of(error_of(served.post({{"prompt", {5000}}}), 400)), HasSubstr("outside the vocabulary of 257"));
  const auto error = error_of(
      served.post({{"prompt", json::array({json::array({97}), json::array({5000})})}, {"max_tokens", 60}}), 400);
  EXPECT_TRUE(eventually([&] { return served.engine.open() == 0; })) << "the prompt before the refused one still runs";
}

TEST(Completions, AnEmptyPromptIsRefused) {
  ApiTestServer served;
  EXPECT_EQ(error_of(served.post({{"prompt", ""}}), 400)["param"], "prompt");
  EXPECT_EQ(error_of(served.post({{"prompt", {"a", ""}}}), 400)["param"], "prompt[1]");
}

TEST(Completions, AnotherModelsNameIsNotFound) {
  ApiTestServer served;
  const auto error = error_of(served.post({{"model", "gpt-4"}, {"prompt", "a"}}), 404);
  EXPECT_EQ(error["code"], "model_not_found");
  EXPECT_THAT(message_of(error), AllOf(HasSubstr("gpt-4"), HasSubstr("org/tiny")));
}

TEST(Completions, CharactersOfSeveralTokensAreNotSplit) {
  ApiTestServer served;
  EXPECT_EQ(body_of(served.post({{"prompt", "\u4e16\U0001F600"}, {"max_tokens", 14}}))["choices"][0]["text"],
            "\u4e16\U0001F600\u4e16\U0001F600");
  EXPECT_EQ(body_of(served.post({{"prompt", "\u4e16"}, {"max_tokens", 4}}))["choices"][0]["text"], "\u4e16\uFFFD");
}

TEST(Completions, ThirtyTwoClientsAtOnceGetTheirOwnReplies) {
  ApiTestServer served;
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int c = 0; c < 32; ++c)
    clients.emplace_back([&, c] {
      auto client = served.client();
      client.set_keep_alive(true);
      for (int i = 0; i < 10; ++i) {
        const std::string mine = "c" + std::to_string(c) + "i" + std::to_string(i) + ";";
        const auto result = client.Post(
            "/v1/completions", json({{"prompt", mine}, {"max_tokens", mine.size() * 2}}).dump(), "application/json");
        if (result && result->status == 200 && json::parse(result->body)["choices"][0]["text"] == mine + mine) ++right;
      }
    });
  for (auto& client : clients) client.join();
  EXPECT_EQ(right, 320);
  std::set<std::string> ids;
  for (const auto& request : served.engine.submitted_requests()) ids.insert(request.id);
  EXPECT_EQ(ids.size(), 320u) << "request ids are not unique";
}

}  // namespace
}  // namespace pm::test
