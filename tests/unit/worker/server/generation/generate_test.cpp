// SPDX-License-Identifier: Apache-2.0
// Tests POST /generate and GET /generate_text over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/api_test_server.h"
#include "tests/unit/worker/server/support/events.h"

namespace pm::test {
namespace {

using engine::EarlyStopping;
using engine::SearchParams;
using testing::AllOf;
using testing::HasSubstr;

httplib::Result post(const ApiTestServer& served, const json& body) {
  return served.client().Post("/generate", body.dump(), "application/json");
}

json value_of(const httplib::Result& result) {
  EXPECT_TRUE(result) << httplib::to_string(result.error());
  if (!result) return json::object();
  EXPECT_EQ(result->status, 200) << result->body;
  return json::parse(result->body);
}

json post_ok(const ApiTestServer& served, const json& body) { return value_of(post(served, body)); }

std::string refusal(const ApiTestServer& served, json body, const std::string& param) {
  if (!body.contains("inputs") && !body.contains("input_ids")) body["inputs"] = "abc";
  const auto error = error_of(post(served, body), 400);
  EXPECT_EQ(error["param"], param) << body;
  return error["message"];
}

const auto source_text = [](auto& options) {
  options.capabilities.kind = policy::ModelKind::EncoderDecoder;
  options.decoder_start = 'S';
};

TEST(Generate, GeneratedTextBeginsWithThePromptByDefault) {
  ApiTestServer served;
  EXPECT_EQ(post_ok(served, {{"inputs", "abc"}, {"parameters", {{"max_new_tokens", 4}}}}),
            json({{"generated_text", "abcabca"}}));
  EXPECT_EQ(post_ok(served, {{"inputs", "abc"}, {"max_new_tokens", 4}, {"return_full_text", false}}),
            json({{"generated_text", "abca"}}));
}

TEST(Generate, SeveralInputsAndSequencesReturnLists) {
  ApiTestServer served;
  EXPECT_EQ(post_ok(served, {{"inputs", {"ab", "cd"}}, {"max_new_tokens", 2}}),
            json::parse(R"([{"generated_text": "abab"}, {"generated_text": "cdcd"}])"));
  EXPECT_EQ(post_ok(served, {{"inputs", {"ab"}}, {"max_new_tokens", 2}}),
            json::parse(R"([{"generated_text": "abab"}])"));
  const json sampled = {{"max_new_tokens", 2}, {"do_sample", true}, {"num_return_sequences", 2}};
  EXPECT_EQ(post_ok(served, {{"inputs", "ab"}, {"parameters", sampled}}),
            json::parse(R"([{"generated_text": "abab"}, {"generated_text": "abba"}])"));
  EXPECT_EQ(post_ok(served, {{"inputs", {"ab", "cd"}}, {"parameters", sampled}})[1],
            json::parse(R"([{"generated_text": "cdcd"}, {"generated_text": "cddc"}])"));
}

TEST(Generate, BeamsAreReturnedWithScoresBestFirst) {
  ApiTestServer served;
  const auto beams = post_ok(served, {{"inputs", "abc"},
                                      {"parameters",
                                       {{"max_new_tokens", 3},
                                        {"num_beams", 4},
                                        {"num_return_sequences", 2},
                                        {"early_stopping", "never"},
                                        {"length_penalty", 0.5},
                                        {"return_token_ids", true},
                                        {"details", true}}}});
  EXPECT_EQ(beams[0]["generated_text"], "abcabc");
  EXPECT_EQ(beams[0]["score"], -0.5);
  EXPECT_EQ(beams[0]["sequence"], json({97, 98, 99, 97, 98, 99}));
  EXPECT_EQ(beams[0]["details"]["generated_tokens"], 3);
  EXPECT_EQ(beams[1]["generated_text"], "abcbca");
  EXPECT_EQ(beams[1]["score"], -1.0);
  const auto request = served.engine.submitted_requests().at(0);
  EXPECT_EQ(request.search, (SearchParams{4, 2, EarlyStopping::Never, 0.5}));
  EXPECT_EQ(request.logprobs, -1) << "beam search returns no log-probabilities";
}

TEST(Generate, EveryParameterReachesTheEngine) {
  ApiTestServer served;
  post_ok(served, {{"input_ids", {97, 98}},
                   {"parameters",
                    {{"max_length", 12},
                     {"min_length", 5},
                     {"do_sample", true},
                     {"temperature", 0.5},
                     {"top_k", 7},
                     {"top_p", 0.75},
                     {"min_p", 0.125},
                     {"typical_p", 0.5},
                     {"repetition_penalty", 1.5},
                     {"presence_penalty", 0.5},
                     {"frequency_penalty", 0.25},
                     {"no_repeat_ngram_size", 2},
                     {"bad_words_ids", {{1, 2}}},
                     {"seed", 9},
                     {"max_time", 3},
                     {"num_beams", 2},
                     {"early_stopping", true},
                     {"eos_token_id", {5, 6}}}}});
  const auto request = served.engine.submitted_requests().at(0);
  engine::SamplingParams wanted{.do_sample = true,
                                .temperature = 0.5,
                                .top_k = 7,
                                .top_p = 0.75,
                                .seed = 9,
                                .min_p = 0.125,
                                .typical_p = 0.5,
                                .repetition_penalty = 1.5,
                                .presence_penalty = 0.5,
                                .frequency_penalty = 0.25,
                                .no_repeat_ngram_size = 2,
                                .min_new_tokens = 3,
                                .bad_words = {{1, 2}}};
  EXPECT_EQ(request.sampling, wanted);
  EXPECT_EQ(request.search, (SearchParams{.num_beams = 2, .early_stopping = EarlyStopping::Yes}));
  EXPECT_EQ(request.max_new_tokens, 10);
  EXPECT_EQ(request.max_time, 3);
  EXPECT_THAT(request.eos, testing::ElementsAre(5, 6));
}

TEST(Generate, DefaultsAreTheModelsThenHuggingFaces) {
  ApiTestServer plain;
  post_ok(plain, {{"inputs", "ab"}});
  post_ok(plain, {{"inputs", "ab"}, {"do_sample", true}});
  post_ok(plain, {{"inputs", "ab"}, {"temperature", 0.5}});
  EXPECT_EQ(plain.engine.submitted_requests()[0].max_new_tokens, 20);
  EXPECT_EQ(plain.engine.submitted_requests()[0].search, SearchParams());
  EXPECT_EQ(plain.engine.submitted_requests()[1].sampling.top_k, 50);
  EXPECT_FALSE(plain.engine.submitted_requests()[2].sampling.do_sample)
      << "in transformers a temperature alone does not sample";

  ApiTestServer tuned({}, [](auto& options) {
    options.defaults = {.config = {.sampling = {.do_sample = true, .top_k = 5},
                                   .search = {.num_beams = 3, .length_penalty = 2},
                                   .max_new_tokens = {},
                                   .max_length = 30,
                                   .min_length = 10,
                                   .max_time = 7},
                        .has_top_k = true};
  });
  post_ok(tuned, {{"inputs", "ab"}});
  post_ok(tuned,
          {{"inputs", "ab"}, {"num_beams", 1}, {"do_sample", false}, {"max_new_tokens", 4}, {"min_new_tokens", 0}});
  const auto seen = tuned.engine.submitted_requests();
  EXPECT_EQ(seen[0].max_new_tokens, 28);
  EXPECT_EQ(seen[0].sampling.min_new_tokens, 8);
  EXPECT_EQ(seen[0].sampling.top_k, 5);
  EXPECT_EQ(seen[0].search, (SearchParams{.num_beams = 3, .length_penalty = 2}));
  EXPECT_EQ(seen[0].max_time, 7);
  EXPECT_EQ(seen[1].search.num_beams, 1);
  EXPECT_EQ(seen[1].max_new_tokens, 4);
  EXPECT_EQ(seen[1].sampling.min_new_tokens, 0);
  tuned.post({{"prompt", "a"}, {"max_tokens", 1}});
  EXPECT_EQ(tuned.engine.submitted_requests()[2].search, SearchParams()) << "OpenAI's routes do not search";
}

TEST(Generate, AnEncoderDecodersAnswerBeginsWithItsStartToken) {
  ApiTestServer served({}, source_text);
  const auto answer = post_ok(served, {{"inputs", "abcdef"}, {"max_length", 4}, {"return_token_ids", true}});
  EXPECT_EQ(served.engine.submitted_requests()[0].max_new_tokens, 3);
  EXPECT_EQ(answer, json({{"generated_text", "Sabc"}, {"sequence", {83, 97, 98, 99}}}));
  EXPECT_THAT(refusal(served, {{"return_full_text", true}}, "return_full_text"), HasSubstr("does not continue"));
  EXPECT_THAT(refusal(served, {{"max_length", 1}}, "max_length"), HasSubstr("at least 2"));
  EXPECT_THAT(refusal(served, {{"inputs", std::string(65, 'a')}}, "inputs"), HasSubstr("64"));
  post_ok(served, {{"inputs", std::string(64, 'a')}, {"max_new_tokens", 63}});
}

TEST(Generate, TheTextIncludesTheStopStringAsInTransformers) {
  ApiTestServer served;
  const auto answer = post_ok(
      served,
      {{"inputs", "abcd"}, {"max_new_tokens", 20}, {"stop", {"cd"}}, {"details", true}, {"return_full_text", false}});
  EXPECT_EQ(answer["generated_text"], "abcd");
  EXPECT_EQ(answer["details"]["finish_reason"], "stop_sequence");
  EXPECT_EQ(post_ok(served, {{"inputs", "abcd"}, {"max_new_tokens", 20}, {"stop_strings", "bc"}})["generated_text"],
            "abcdabc");
}

TEST(Generate, DetailsHoldTokensAndTheFinishReason) {
  ApiTestServer served([](const engine::Request&, int64_t step) { return step == 1 ? end_id : 'x'; });
  const auto details =
      post_ok(served, {{"inputs", "a"}, {"details", true}, {"do_sample", true}, {"seed", 3}})["details"];
  EXPECT_EQ(details, json::parse(R"({"finish_reason": "eos_token", "generated_tokens": 2, "seed": 3, "prefill": [],
    "tokens": [{"id": 120, "text": "x", "logprob": -0.25, "special": false}, {"id": 256, "text": "<|end|>", "logprob": -0.25, "special": true}]})"));
}

TEST(Generate, EventsCarryOneTokenEachAndTheTextAtTheEnd) {
  ApiTestServer served;
  const auto result = post(
      served, {{"inputs", "a\u4e16"}, {"stream", true}, {"parameters", {{"max_new_tokens", 5}, {"details", true}}}});
  ASSERT_TRUE(result);
  const auto events = events_of(result->body);
  ASSERT_EQ(events.size(), 5u);
  const char* pieces[] = {"a", "", "", "\u4e16", "a"};
  for (size_t i = 0; i < 5; ++i) {
    const auto event = json::parse(events[i]);
    EXPECT_EQ(event["index"], i + 1);
    EXPECT_EQ(event["token"]["text"], pieces[i]);
    EXPECT_EQ(event["generated_text"], i == 4 ? json("a\u4e16a\u4e16a") : json());
  }
  EXPECT_EQ(json::parse(events[4])["details"],
            json::parse(R"({"finish_reason": "length", "generated_tokens": 5, "seed": null})"));
}

TEST(Generate, UnknownNamesAreRefusedWithTheNearest) {
  ApiTestServer served;
  EXPECT_THAT(refusal(served, {{"parameters", {{"num_beam", 2}}}}, "num_beam"), HasSubstr("the nearest is num_beams;"));
  EXPECT_THAT(refusal(served, {{"max_tokens", 2}}, "max_tokens"), HasSubstr("the nearest is max_new_tokens;"));
  refusal(served, {{"num_beam_groups", 2}}, "num_beam_groups");
  EXPECT_THAT(refusal(served, {{"top_k", 1}, {"parameters", {{"top_k", 2}}}}, "top_k"), HasSubstr("twice"));
}

TEST(Generate, ConflictingFieldsAreRefusedByName) {
  ApiTestServer served;
  EXPECT_THAT(refusal(served, {{"stream", true}, {"num_beams", 2}}, "stream"), HasSubstr("num_beams"));
  EXPECT_THAT(refusal(served, {{"stop", "a"}, {"num_beams", 2}}, "stop"), HasSubstr("num_beams"));
  EXPECT_THAT(refusal(served, {{"num_return_sequences", 3}, {"num_beams", 2}}, "num_return_sequences"),
              HasSubstr("num_beams is 2"));
  EXPECT_THAT(refusal(served, {{"num_return_sequences", 3}}, "num_return_sequences"), HasSubstr("do_sample"));
  EXPECT_THAT(refusal(served, {{"early_stopping", "always"}}, "early_stopping"), HasSubstr("\"never\""));
  EXPECT_THAT(refusal(served, {{"max_length", 3}}, "max_length"),
              AllOf(HasSubstr("3 tokens"), HasSubstr("at least 4")));
  EXPECT_THAT(refusal(served, {{"max_new_tokens", 62}}, "max_new_tokens"), HasSubstr("at most 61"));
  EXPECT_THAT(refusal(served, {{"inputs", "a"}, {"input_ids", {1}}}, "inputs"), HasSubstr("not both"));
  refusal(served, {{"inputs", {1, 2}}}, "inputs");
  refusal(served, {{"input_ids", "a"}}, "input_ids");
  refusal(served, {{"temperature", 0}}, "temperature");
  EXPECT_EQ(error_of(post(served, json::object()), 400)["param"], "inputs");
}

TEST(Generate, WithoutATokenizerSequencesAreReturned) {
  ApiTestServer served({}, {}, false);
  EXPECT_EQ(post_ok(served, {{"input_ids", {97, 98}}, {"max_new_tokens", 2}}), json({{"sequence", {97, 98, 97, 98}}}));
  EXPECT_EQ(error_of(post(served, {{"inputs", "a"}}), 400)["code"], "no_tokenizer");
}

json got(const ApiTestServer& served, const std::string& path) { return value_of(served.get(path)); }

TEST(GenerateText, ReplyHasThePredecessorsFormat) {
  ApiTestServer served;
  EXPECT_EQ(got(served, "/generate_text/Messi?max_length=10"), json({{"inputs", "Messi"}, {"outputs", "MessiMessi"}}));
  EXPECT_EQ(got(served, "/generate_text/Messi?num_beams=5&no_repeat_ngram_size=4&max_length=15"),
            json({{"inputs", "Messi"}, {"outputs", "MessiMessiMessi"}}));
  EXPECT_EQ(served.engine.submitted_requests()[1].search.num_beams, 5);
  EXPECT_EQ(served.engine.submitted_requests()[1].sampling.no_repeat_ngram_size, 4);
  EXPECT_EQ(got(served, "/generate_text/ab")["outputs"],
            "ab"
            "abababababababababab");
  EXPECT_EQ(got(served, "/generate_text/ab?max_tokens=2")["outputs"], "abab")
      << "max_tokens is the name in earlier versions";
}

TEST(GenerateText, TheQueryHasTheParametersOfGenerate) {
  ApiTestServer served;
  EXPECT_EQ(got(served,
                "/generate_text/"
                "ab?do_sample=True&num_return_sequences=2&max_new_tokens=2&early_stopping=never&bad_words_ids=[[1,2]]")
                ["outputs"],
            json({"abab", "abba"}));
  const auto request = served.engine.submitted_requests().at(0);
  EXPECT_TRUE(request.sampling.do_sample);
  EXPECT_EQ(request.search.early_stopping, EarlyStopping::Never);
  EXPECT_EQ(request.sampling.bad_words, (std::vector<std::vector<int32_t>>{{1, 2}}));
  EXPECT_EQ(got(served, "/generate_text/a1b2?stop=1&stop=zz")["outputs"], "a1b2a1")
      << "a stop string stays a text even if it looks like a number";
  for (const char* query : {"max_new_tokens=0", "max_new_tokens=x", "max_new_tokens=", "max_new_tokens=1x",
                            "max_new_tokens=99999999999999999999", "num_beam=2", "stream=true", "inputs=x", "seed=[1]"})
    error_of(served.get(std::string("/generate_text/a?") + query), 400);
  EXPECT_THAT(error_of(served.get("/generate_text/a?num_beam=2"), 400)["message"].get<std::string>(),
              HasSubstr("the nearest is num_beams;"));
}

TEST(GenerateText, TheTextIsPercentDecodedExactly) {
  ApiTestServer served;
  const std::string text = "a+b/c d?\u4e16%";
  EXPECT_EQ(got(served, "/generate_text/a+b/c%20d%3F%E4%B8%96%25?max_new_tokens=1")["inputs"], text);
  const auto message = [&](const char* path) { return error_of(served.get(path), 400)["message"].get<std::string>(); };
  EXPECT_THAT(message("/generate_text/100%"), HasSubstr("%25"));
  EXPECT_THAT(message("/generate_text/%zz"), HasSubstr("%zz"));
  EXPECT_THAT(message("/generate_text/%C3"), HasSubstr("utf-8"));
  error_of(served.get("/generate_text/"), 400);
}

}  // namespace
}  // namespace pm::test
