// SPDX-License-Identifier: Apache-2.0
// Questions become passages, inputs of the generator and answers. The fake engine finds the passages 2 and 0, and bytes
// are tokens, so that each input can be read.
#include "worker/server/retrieval/retrieval_engine.h"

#include <gmock/gmock.h>

#include <cmath>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/unit/worker/server/support/fake_engine.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"
#include "worker/base/error.h"

namespace pm::server {
namespace {

using engine::Event;
using engine::Finish;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t start = 7, vocabulary = 256;
const std::vector<std::string> lines{R"({"title": "One", "text": "a  b"})", R"({"title": "x", "text": "y"})",
                                     R"({"title": "\"Three\"", "text": "c"})"};

std::vector<int32_t> ids_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), reinterpret_cast<const uint8_t*>(text.data()) + text.size()};
}

policy::Model model_of(policy::Marginal marginal) {
  policy::Model model;
  model.architecture = "Retrieving";
  model.decoder_start = start;
  model.stacks.resize(1);
  model.stacks[0].vocab = vocabulary;
  model.retrieval = policy::Retrieval{.marginal = marginal,
                                      .passages = 3,
                                      .docs = 2,
                                      .max_length = 12,
                                      .prefix = "",
                                      .title_sep = "/",
                                      .doc_sep = "|",
                                      .pad = 0};
  return model;
}

/// The events of a request until all of its sequences have ended.
struct Heard {
  explicit Heard(int64_t sequences) : open(sequences) {}
  void operator()(const Event& event) {
    const std::lock_guard lock(mutex);
    events.push_back(event);
    if (event.finish != Finish::None && --open == 0) done.notify_all();
  }
  const std::vector<Event>& wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(done.wait_for(lock, std::chrono::seconds(30), [&] { return open == 0; }));
    return events;
  }
  std::mutex mutex;
  std::vector<Event> events;
  int64_t open;
  std::condition_variable done;
};

struct Fixture {
  explicit Fixture(
      policy::Marginal marginal,
      test::FakeEngine::Token token = [](const engine::Request&,
                                         int64_t step) { return static_cast<int32_t>(60 + step); })
      : inner(std::move(token)), model(model_of(marginal)) {
    for (const char* name : {question_tokenizer_folder, generator_tokenizer_folder}) {
      std::filesystem::create_directories(folder.path() / name);
      test::write_tokenizer(folder.path() / name, test::byte_level_json());
    }
    std::filesystem::create_directories(folder.path() / "index");
    write_passages(3);
    retriever.emplace(*model.retrieval, folder.path());
    engine.emplace(inner, model, *retriever, [this](const engine::Request& request) { checked.push_back(request); });
    inner.answer_forward([this](const engine::ForwardRequest& request) { return answer(request); });
  }
  void write_passages(size_t count) {
    std::ofstream file(folder.path() / "index/passages.jsonl");
    for (size_t i = 0; i < count; ++i) file << lines[i] << "\n";
  }
  /// Passages 2 and 0 for a question. The logits of a candidate say token 71 with passage 0 and token 60 with
  /// passage 2.
  Arrays answer(const engine::ForwardRequest& request) const {
    if (request.inputs.contains("input_ids"))
      return {{"doc_scores", {{1, 2}, std::vector<float>{std::log(0.2F), std::log(0.8F)}}},
              {"doc_ids", {{1, 2}, std::vector<int64_t>{2, 0}}}};
    const std::vector<int64_t>& shape = request.inputs.at("decoder_input_ids").shape;
    std::vector<float> logits(static_cast<size_t>(shape[0] * shape[1] * vocabulary));
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t position = 0; position < shape[1]; ++position)
        logits[static_cast<size_t>((row * shape[1] + position) * vocabulary + (row == 0 ? 60 : 71))] = 5;
    return {{"logits", {{shape[0], shape[1], vocabulary}, std::move(logits)}}};
  }
  engine::Request ask(int64_t count = 3, engine::SearchParams search = {}) const {
    return {.id = "r", .prompt = ids_of("who?"), .max_new_tokens = count, .sampling = {}, .eos = {}, .search = search};
  }
  std::vector<engine::Request> checked;  ///< the longest requests that submit() had checked
  test::TempFolder folder;
  test::FakeEngine inner;
  policy::Model model;
  std::optional<Retriever> retriever;
  std::optional<RetrievalEngine> engine;
};

TEST(RetrievalEngine, TheGeneratorReadsEachPassageWithTheQuestionByWeight) {
  Fixture f(policy::Marginal::Token);
  Heard heard(1);
  f.engine->submit(f.ask(), [&](const Event& event) { heard(event); });
  const std::vector<Event>& events = heard.wait();
  const engine::Request request = f.inner.submitted_requests().at(0);
  EXPECT_TRUE(request.prompt.empty());
  ASSERT_EQ(request.sources.size(), 2u);
  EXPECT_EQ(request.sources[0].tokens, ids_of("Three/c|who?")) << "without its quotation marks";
  EXPECT_EQ(request.sources[1].tokens, ids_of("One/a b|who?")) << "one space of two";
  EXPECT_NEAR(request.sources[0].log_weight, std::log(0.2), 1e-6);
  EXPECT_NEAR(request.sources[1].log_weight, std::log(0.8), 1e-6);
  ASSERT_EQ(events.size(), 3u);
  ASSERT_TRUE(events[0].passages && !events[1].passages);
  EXPECT_EQ(events[0].passages->at(0).number, 2);
  EXPECT_EQ(events[0].passages->at(1).text, "a  b");
}

TEST(RetrievalEngine, LongPassagesLoseTheirEnd) {
  Fixture f(policy::Marginal::Token);
  const std::vector<engine::RetrievedPassage> found{{0, 0, "A long title", "and a text"}};
  EXPECT_THAT(f.retriever->contexts(ids_of("who?"), found), ElementsAre(ids_of("A long title")));
}

TEST(RetrievalEngine, WholeAnswersAreRankedOverAllPassages) {
  // the first passage makes 60, the second 71; by weight the passage that likes 71 wins
  Fixture f(policy::Marginal::Sequence,
            [](const engine::Request& request, int64_t) { return request.prompt[0] == 'T' ? 60 : 71; });
  Heard heard(2);
  f.engine->submit(f.ask(3, {.num_beams = 1, .num_return_sequences = 2}), [&](const Event& event) { heard(event); });
  const std::vector<Event>& events = heard.wait();
  ASSERT_EQ(events.size(), 2u) << "each answer comes whole";
  ASSERT_EQ(events[0].tokens.size(), 3u);
  EXPECT_EQ(f.inner.submitted_requests()[1].prompt, ids_of(std::string("One/a b|who?")));
  EXPECT_EQ(events[0].tokens[0].id, 71);
  EXPECT_EQ(events[1].tokens[0].id, 60);
  EXPECT_GT(events[0].score, events[1].score);
  EXPECT_TRUE(events[0].passages && !events[1].passages);
  EXPECT_EQ(events[0].finish, Finish::Length);
}

TEST(RetrievalEngine, EqualAnswersAreNotReturnedTwice) {
  Fixture f(policy::Marginal::Sequence);
  Heard heard(2);
  f.engine->submit(f.ask(3, {.num_beams = 1, .num_return_sequences = 2}), [&](const Event& event) { heard(event); });
  const std::vector<Event>& events = heard.wait();
  EXPECT_EQ(events[0].finish, Finish::Failed);
  EXPECT_THAT(events[0].reason, HasSubstr("the passages gave 1 different answers"));
}

TEST(RetrievalEngine, ACancelledRequestEndsOnceAndCancelsWhatItStarted) {
  for (const policy::Marginal marginal : {policy::Marginal::Token, policy::Marginal::Sequence}) {
    Fixture f(marginal);
    f.inner.hold_generation();
    Heard heard(1);
    f.engine->submit(f.ask(), [&](const Event& event) { heard(event); });
    while (f.inner.submitted_requests().size() < (marginal == policy::Marginal::Token ? 1u : 2u))
      std::this_thread::yield();
    f.engine->cancel("r");
    EXPECT_EQ(heard.wait().back().finish, Finish::Cancelled);
    f.engine->cancel("r");
    EXPECT_EQ(f.inner.open(), 0u);
  }
}

TEST(RetrievalEngine, AFailureOfTheInnerEngineEndsTheRequestWithItsReason) {
  for (const policy::Marginal marginal : {policy::Marginal::Token, policy::Marginal::Sequence}) {
    Fixture f(marginal);
    f.inner.hold_generation();
    Heard heard(1);
    f.engine->submit(f.ask(), [&](const Event& event) { heard(event); });
    while (f.inner.open() < (marginal == policy::Marginal::Token ? 1u : 2u)) std::this_thread::yield();
    f.inner.fail("rank 1 died");
    EXPECT_EQ(heard.wait().back().finish, Finish::Failed);
    EXPECT_EQ(heard.events.back().reason, "rank 1 died");
    EXPECT_THROW(f.engine->submit(f.ask(), [](const Event&) {}), Error);
  }
}

TEST(RetrievalEngine, TheDestructorEndsOpenRequests) {
  Fixture f(policy::Marginal::Sequence);
  f.inner.hold_generation();
  Heard heard(1);
  f.engine->submit(f.ask(), [&](const Event& event) { heard(event); });
  while (f.inner.submitted_requests().size() < 2) std::this_thread::yield();
  f.engine.reset();
  EXPECT_EQ(heard.wait().back().finish, Finish::Cancelled);
}

TEST(RetrievalEngine, RefusalsComeFromSubmit) {
  Fixture f(policy::Marginal::Sequence);
  const auto refusal = [&](engine::Request request) -> std::string {
    try {
      f.engine->submit(std::move(request), [](const Event&) {});
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::InvalidRequest);
      return error.what();
    }
    return "";
  };
  engine::Request request = f.ask();
  request.logprobs = 1;
  EXPECT_THAT(refusal(request), HasSubstr("Retrieving has no logprobs"));
  EXPECT_THAT(refusal(f.ask(3, {.num_beams = 2, .num_return_sequences = 5})), HasSubstr("give 4 candidates"));
  request = f.ask();
  request.prompt.clear();
  EXPECT_THAT(refusal(request), HasSubstr("the prompt has 0 tokens"));
  request = f.ask();
  request.sources.push_back({{1}, 0});
  EXPECT_THAT(refusal(request), HasSubstr("makes them of the passages"));
}

TEST(RetrievalEngine, TheLongestRequestOfPassagesIsCheckedBeforeTheSearch) {
  for (const policy::Marginal marginal : {policy::Marginal::Token, policy::Marginal::Sequence}) {
    Fixture f(marginal);
    Heard heard(1);
    f.engine->submit(f.ask(5, {.num_beams = 3}), [&](const Event& event) { heard(event); });
    heard.wait();
    ASSERT_EQ(f.checked.size(), 1u);
    const engine::Request& longest = f.checked[0];
    EXPECT_EQ(longest.max_new_tokens, 5);
    const bool token = marginal == policy::Marginal::Token;
    EXPECT_EQ(longest.prompt.size(), token ? 0u : 12u);
    ASSERT_EQ(longest.sources.size(), token ? 2u : 0u);
    if (token) {
      EXPECT_EQ(longest.sources[1].tokens.size(), 12u);
    }
    EXPECT_EQ(longest.search.num_return_sequences, token ? 1 : 3);
  }
}

TEST(RetrievalEngine, AnIndexOfAnotherCountThanItsEmbeddingsIsRefused) {
  Fixture f(policy::Marginal::Token);
  f.write_passages(2);
  try {
    const Retriever retriever(*f.model.retrieval, f.folder.path());
    FAIL() << "2 passages for 3 embeddings";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::ModelUnreadable);
    EXPECT_THAT(error.what(), HasSubstr("has 2 passages and 3 embeddings"));
  }
}

}  // namespace
}  // namespace pm::server
