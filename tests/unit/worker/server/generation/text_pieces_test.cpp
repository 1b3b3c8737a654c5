// SPDX-License-Identifier: Apache-2.0
// Tests percent-decoding, stop strings, generation defaults and the thread pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>

#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/generation/stop_matcher.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/percent_encoding.h"
#include "worker/server/http/thread_pool.h"

namespace pm::server {
namespace {

TEST(Percent, DecodesEveryByteAndRefusesIncompleteEscapes) {
  EXPECT_EQ(percent_decode("a%20b+%2f%41%00c"), std::string("a b+/A\0c", 8));
  EXPECT_EQ(percent_decode(""), "");
  for (const char* bad : {"%", "a%", "%4", "%4g", "%g4", "%%41"}) EXPECT_THROW(percent_decode(bad), ApiError) << bad;
  EXPECT_EQ(parse_query("a=1&b&&c=%3D="),
            (std::vector<std::pair<std::string, std::string>>{{"a", "1"}, {"b", ""}, {"c", "=="}}));
}

TEST(StopMatcher, TextSplitAnywhereGivesTheSameResult) {
  const std::string text = "one two STOP three";
  for (size_t a = 0; a <= text.size(); ++a)
    for (size_t b = a; b <= text.size(); ++b) {
      StopMatcher matcher({"STOP", "three"});
      std::string shown = matcher.push(text.substr(0, a));
      shown += matcher.push(text.substr(a, b - a));
      shown += matcher.push(text.substr(b));
      EXPECT_EQ(shown + matcher.flush(), "one two ");
      EXPECT_TRUE(matcher.hit());
    }
}

TEST(StopMatcher, AnIncompleteStopStringIsReleasedAtTheEnd) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("xaa"), "x");
  EXPECT_EQ(matcher.push("a"), "a");
  EXPECT_EQ(matcher.flush(), "aa");
  StopMatcher none({});
  EXPECT_EQ(none.push("abc"), "abc");
}

TEST(GenerationDefaults, AreGreedyUnlessTheCheckpointDiffers) {
  test::TempFolder folder;
  EXPECT_FALSE(read_generation_defaults(folder.path()).config.sampling.do_sample);
  const auto write = [&](const char* text) { std::ofstream(folder.path() / "generation_config.json") << text; };
  write(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": null, "eos_token_id": 5})");
  const auto plain = read_generation_defaults(folder.path());
  const auto& sampling = plain.config.sampling;
  EXPECT_FALSE(plain.has_top_k);
  EXPECT_TRUE(sampling.do_sample);
  EXPECT_EQ(sampling.temperature, 0.6);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.top_k, 0);
  for (const char* broken :
       {"{", "{\"temperature\": \"hot\"}", "[]", "{\"early_stopping\": \"soon\"}", "{\"num_beams\": \"many\"}"}) {
    write(broken);
    EXPECT_THROW(read_generation_defaults(folder.path()), Error) << broken;
  }
  write(
      R"({"num_beams": 4, "num_return_sequences": 2, "length_penalty": 2.0, "early_stopping": "never", "max_length": 142, "min_length": 56, "max_new_tokens": null,
            "no_repeat_ngram_size": 3, "top_k": 7, "bad_words_ids": [[1]], "max_time": 9})");
  const auto defaults = read_generation_defaults(folder.path());
  const auto& config = defaults.config;
  EXPECT_EQ(config.search, (engine::SearchParams{4, 2, engine::EarlyStopping::Never, 2.0}));
  EXPECT_EQ(config.max_length, 142);
  EXPECT_EQ(config.min_length, 56);
  EXPECT_FALSE(config.max_new_tokens);
  EXPECT_TRUE(defaults.has_top_k);
  EXPECT_EQ(config.max_time, 9);
  EXPECT_EQ(config.sampling.no_repeat_ngram_size, 3);
}

TEST(ThreadPool, GrowsToItsLimitThenQueuesThenRefusesAndShutdownRunsTheQueue) {
  std::promise<void> go;
  auto gate = go.get_future().share();
  std::atomic<int> ran{0};
  ThreadPool pool(2, 3);
  int accepted = 0;
  for (int i = 0; i < 10; ++i)
    accepted += pool.enqueue([&, gate] {
      gate.wait();
      ++ran;
    });
  EXPECT_EQ(accepted, 5);
  go.set_value();
  pool.shutdown();
  EXPECT_EQ(ran, 5);
  EXPECT_FALSE(pool.enqueue([] {}));
}

}  // namespace
}  // namespace pm::server
