// SPDX-License-Identifier: Apache-2.0
// Tests what a module for multi-token prediction proposes, which states and rows it has for that, and that answers with
// it are those without.
#include <gmock/gmock.h>

#include "tests/unit/worker/engine/replies.h"
#include "worker/engine/speculation/mtp_module.h"

namespace pm::engine {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

MtpModule::Limits small_limits() {
  return {.vocabulary = vocabulary, .positions = 512, .kv_blocks = 40, .step_tokens = 64};
}

std::vector<int32_t> joined(std::vector<int32_t> tokens, const std::vector<int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

std::vector<int32_t> from(const std::vector<int32_t>& tokens, size_t first) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end()};
}

/// A module that guesses right: it goes on with the sums of the summing executor.
struct Module {
  explicit Module(const MtpModule::Limits& limits = small_limits(), bool device_sampling = false)
      : executor(new SummingExecutor(limits.kv_blocks, device_sampling)),
        module(
            std::make_shared<MtpModule>(std::make_unique<Rank>(std::unique_ptr<parallel::Executor>(executor)), limits)),
        drafter(MtpModule::drafter(module)) {}
  /// Gives it the states of `rows` tokens from `first` on.
  void observe(const std::vector<int32_t>& tokens, int64_t first, int64_t rows, int32_t slot = 0) {
    const at::Tensor states = at::zeros({rows, 1});
    for (int64_t row = 0; row < rows; ++row)
      states[row][0] = sum_of(std::span(tokens).first(static_cast<size_t>(first + row + 1))) % vocabulary;
    const TokenStates one{.slot = slot, .tokens = tokens, .prompt = prompt, .first = first, .rows = states};
    drafter->observe({&one, 1});
  }
  std::vector<int32_t> drafts(const std::vector<int32_t>& tokens, int64_t count, int32_t slot = 0,
                              SamplingParams how = {}) {
    const DraftRequest request{.slot = slot, .tokens = tokens, .count = count, .sampling = &how};
    return drafter->propose({&request, 1}).tokens.at(0);
  }
  int64_t prompt = 1000;  ///< tokens of the prompts; texts are no longer unless a test says so
  SummingExecutor* executor;
  std::shared_ptr<MtpModule> module;
  std::unique_ptr<Drafter> drafter;
};

/// A prompt with the token that the model answers first, of which there is no state yet.
std::vector<int32_t> begun(int32_t start, size_t length) {
  const std::vector<int32_t> prompt = prompt_of(start, length);
  return joined(prompt, expected(prompt, 1));
}

TEST(MtpModule, ProposesWhatTheModelWouldAnswer) {
  Module made;
  const std::vector<int32_t> text = begun(1, 20);
  made.observe(text, 0, 20);
  EXPECT_EQ(made.executor->computed, 0) << "they wait until the sequence drafts";
  EXPECT_THAT(made.drafts(text, 5), ElementsAreArray(expected(text, 5)));
  EXPECT_EQ(made.executor->computed, 20 + 4) << "no row of the last draft";
  EXPECT_THAT(made.executor->seen, ElementsAre(joined(from(text, 1), expected(text, 4))));
}

TEST(MtpModule, GoesOnBehindAcceptedAndRejectedDrafts) {
  Module made;
  std::vector<int32_t> text = begun(1, 30);
  made.observe(text, 0, 30);
  for (const size_t accepted : {5, 0, 3, 4, 1, 5, 2}) {
    const std::vector<int32_t> drafts = made.drafts(text, 5);
    ASSERT_THAT(drafts, ElementsAreArray(expected(text, 5)));
    const size_t known = text.size() - 1;
    text.insert(text.end(), drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(accepted));
    text.push_back((accepted < 5 ? drafts[accepted] + 1 : expected(text, 1)[0]) % vocabulary);  // what came instead
    made.observe(text, static_cast<int64_t>(known), static_cast<int64_t>(accepted) + 1);
    const int64_t before = made.executor->computed;
    EXPECT_THAT(made.drafts(text, 1), ElementsAreArray(expected(text, 1)));
    EXPECT_EQ(made.executor->computed - before, static_cast<int64_t>(accepted) + 1) << "only what is new";
    EXPECT_THAT(made.executor->seen, ElementsAre(from(text, 1))) << "rows of rejected drafts are overwritten";
    text.push_back(expected(text, 1)[0]);
    made.observe(text, static_cast<int64_t>(text.size()) - 2, 1);
  }
}

TEST(MtpModule, DraftsForSequencesTogether) {
  Module made;
  const std::vector<int32_t> one = begun(1, 31), two = begun(2, 9), three = begun(3, 3);
  made.observe(one, 0, 31, 4);
  made.observe(two, 0, 9, 1);
  made.observe(three, 0, 3, 2);
  const SamplingParams greedy;
  const DraftRequest requests[] = {{.slot = 4, .tokens = one, .count = 2, .sampling = &greedy},
                                   {.slot = 1, .tokens = two, .count = 5, .sampling = &greedy},
                                   {.slot = 2, .tokens = three, .count = 1, .sampling = &greedy}};
  const Drafts drafts = made.drafter->propose(requests);
  EXPECT_THAT(drafts.tokens[0], ElementsAreArray(expected(one, 2)));
  EXPECT_THAT(drafts.tokens[1], ElementsAreArray(expected(two, 5)));
  EXPECT_THAT(drafts.tokens[2], ElementsAreArray(expected(three, 1)));
  EXPECT_EQ(made.executor->widest, 31 + 9 + 3);
}

TEST(MtpModule, ComputesAPromptAsItComesButForItsLastRow) {
  Module made;
  const std::vector<int32_t> text = begun(1, 150);
  made.observe(text, 0, 100);
  EXPECT_EQ(made.executor->computed, 99);
  EXPECT_EQ(made.executor->widest, 64) << "in steps";
  made.observe(text, 100, 50);
  EXPECT_EQ(made.executor->computed, 149);
  EXPECT_THAT(made.drafts(text, 3), ElementsAreArray(expected(text, 3)));
  EXPECT_EQ(made.executor->computed, 150 + 2) << "each token once";
  EXPECT_THAT(made.executor->seen, ElementsAre(joined(from(text, 1), expected(text, 2))));
}

TEST(MtpModule, RowsOfAPauseAreComputedTogether) {
  Module made;
  std::vector<int32_t> text = begun(1, 5);
  made.observe(text, 0, 5);
  made.drafts(text, 2);
  const int64_t before = made.executor->computed;
  for (int i = 0; i < 30; ++i) {
    text.push_back(expected(text, 1)[0]);
    made.observe(text, static_cast<int64_t>(text.size()) - 2, 1);
  }
  EXPECT_EQ(made.executor->computed, before);
  EXPECT_THAT(made.drafts(text, 1), ElementsAreArray(expected(text, 1)));
  EXPECT_EQ(made.executor->computed - before, 30);
}

TEST(MtpModule, ALongPauseCostsNothingAndTheLastTokensAreWhereItGoesOn) {
  Module made;
  made.prompt = 50;
  std::vector<int32_t> text = begun(1, 50);
  made.observe(text, 0, 50);
  const auto go_on = [&](int tokens) {
    for (int i = 0; i < tokens; ++i) {
      text.push_back(expected(text, 1)[0]);
      made.observe(text, static_cast<int64_t>(text.size()) - 2, 1);
    }
  };
  go_on(20);
  const int64_t before = made.executor->computed;
  EXPECT_EQ(before, 49) << "rows of the prompt";
  go_on(300);
  EXPECT_EQ(made.executor->computed, before);
  EXPECT_THAT(made.drafts(text, 3), ElementsAreArray(expected(text, 3)));
  const int64_t own = made.executor->computed - before;
  EXPECT_LE(own, 32 + 2);
  ASSERT_EQ(made.executor->seen.size(), 1);
  EXPECT_THAT(made.executor->seen[0],
              ElementsAreArray(from(joined(text, expected(text, 2)), text.size() + 2 - static_cast<size_t>(own))));
  go_on(15);
  EXPECT_THAT(made.drafts(text, 1), ElementsAreArray(expected(text, 1)));
  EXPECT_EQ(made.executor->seen[0].size(), own - 2 + 15) << "it has drafted, and goes on";
}

TEST(MtpModule, GoesOnFromItsOwnPrefixCache) {
  Module made;
  const std::vector<int32_t> text = begun(1, 64), other = joined(prompt_of(1, 32), {5, 6, 7, 8, 9});
  made.observe(text, 0, 64, 0);
  const int64_t before = made.executor->computed;
  made.observe(other, 32, 4, 1);  // the model had the rest in its own
  EXPECT_THAT(made.drafts(other, 2, 1), ElementsAreArray(expected(other, 2)));
  EXPECT_EQ(made.executor->computed - before, 4 + 1);
  std::vector<int32_t> rows = joined(from(other, 1), expected(other, 1));
  rows[31] = text[32];  // the row that was made with the next token of the text that is cached
  EXPECT_THAT(made.executor->seen, ElementsAre(rows));
}

TEST(MtpModule, BeginsWithTheFirstKnownStateBehindAPrefixThatIsNotItsOwn) {
  Module made;
  const std::vector<int32_t> text = begun(2, 40);
  made.observe(text, 32, 8);
  EXPECT_THAT(made.drafts(text, 3), ElementsAreArray(expected(text, 3))) << "at the positions of the text";
  EXPECT_THAT(made.executor->seen, ElementsAre(joined(from(text, 33), expected(text, 2))));
}

TEST(MtpModule, AForkGoesOnFromTheRowsOfItsParent) {
  Module made;
  const std::vector<int32_t> text = begun(1, 41);
  made.observe(text, 0, 41, 3);
  made.drafter->fork(3, 5);
  made.drafter->fork(9, 6);  // whose parent is not known
  EXPECT_THAT(made.drafts(text, 3, 5), ElementsAreArray(expected(text, 3)));
  EXPECT_THAT(made.executor->seen, ElementsAre(joined(from(text, 1), expected(text, 2))));
  const std::vector<int32_t> other = joined(from(text, 0), {11});
  made.observe(other, 41, 1, 3);
  EXPECT_THAT(made.drafts(other, 2, 3), ElementsAreArray(expected(other, 2)));
  EXPECT_THAT(made.executor->seen, ElementsAre(joined(from(other, 1), expected(other, 1))));
  const std::vector<int32_t> longer = joined(text, expected(text, 1));
  made.observe(longer, 41, 1, 5);
  EXPECT_THAT(made.drafts(longer, 1, 5), ElementsAreArray(expected(longer, 1)));
  EXPECT_THAT(made.executor->seen, ElementsAre(from(longer, 1))) << "its parent's drafts are not in its blocks";
}

TEST(MtpModule, BeginsAgainWithoutBlocksAndWhereAStepIsRunAgain) {
  MtpModule::Limits limits = small_limits();
  limits.kv_blocks = 3;
  Module made(limits);
  const std::vector<int32_t> one = begun(1, 40), two = begun(2, 20);
  made.observe(one, 0, 40, 0);
  made.observe(two, 0, 20, 1);
  EXPECT_THAT(made.drafts(two, 2, 1), IsEmpty()) << "no block is left";
  EXPECT_THAT(made.drafts(one, 2, 0), ElementsAreArray(expected(one, 2)));
  made.drafter->forget(0);
  const std::vector<int32_t> longer = joined(two, expected(two, 1));
  made.observe(longer, 20, 1, 1);
  EXPECT_THAT(made.drafts(longer, 2, 1), ElementsAreArray(expected(longer, 2)));
  EXPECT_THAT(made.executor->seen, ElementsAre(joined(from(longer, 21), expected(longer, 1))));
  made.observe(longer, 0, 21, 1);
  EXPECT_THAT(made.drafts(longer, 1, 1), ElementsAreArray(expected(longer, 1)));
  EXPECT_THAT(made.executor->seen, ElementsAre(from(longer, 1)));
}

TEST(MtpModule, ASequenceThatNeverDraftedIsForgotten) {
  Module made;
  const std::vector<int32_t> one = begun(1, 20), two = begun(2, 20);
  made.observe(one, 0, 20, 0);
  made.observe(two, 0, 20, 1);
  made.drafter->forget(1);
  EXPECT_THAT(made.drafts(one, 3, 0), ElementsAreArray(expected(one, 3)));
}

TEST(MtpModule, ProposesNothingWhereStatesAreMissing) {
  Module made;
  const std::vector<int32_t> text = begun(1, 20);
  EXPECT_THAT(made.drafts(text, 3), IsEmpty());
  made.observe(text, 0, 19);
  EXPECT_THAT(made.drafts(text, 3), IsEmpty()) << "of the last token";
  made.observe(text, 19, 1);
  EXPECT_THAT(made.drafts(text, 3), ElementsAreArray(expected(text, 3)));
  EXPECT_THAT(made.drafts(text, 3), IsEmpty()) << "which has a row already";
}

TEST(MtpModule, StaysWithinPositionsAndEndsBehindAnEndToken) {
  MtpModule::Limits limits = small_limits();
  limits.positions = 22;
  Module made(limits);
  const std::vector<int32_t> text = begun(1, 19), answer = expected(text, 8);
  made.observe(text, 0, 19);
  EXPECT_EQ(made.drafts(text, 8).size(), 3) << "rows 20 and 21, and the first draft comes from row 19";
  Module other;
  other.observe(text, 0, 19);
  EXPECT_THAT(other.drafts(text, 8, 0, {.eos = {answer[3]}}),
              ElementsAreArray(answer.begin(), std::find(answer.begin(), answer.end(), answer[3]) + 1));
}

TEST(MtpModule, FailsForItselfAlone) {
  Module made;
  const std::vector<int32_t> text = begun(1, 20);
  made.observe(text, 0, 20);
  made.executor->fail = true;
  EXPECT_THAT(made.drafts(text, 8), IsEmpty());
  made.executor->fail = false;
  const std::vector<int32_t> longer = joined(text, expected(text, 1));
  made.observe(longer, 20, 1);
  EXPECT_THAT(made.drafts(longer, 8), IsEmpty()) << "what it had computed is not known any more";
}

/// Runs requests with and without the module; returns the counters of speculation.
Statistics compare(bool device_sampling, float draft_sharpness, int64_t kv_blocks) {
  MtpModule::Limits limits = small_limits();
  limits.kv_blocks = kv_blocks;
  Module made(limits, device_sampling);
  made.executor->sharpness = draft_sharpness;
  return expect_the_answers_without({6, [&] { return MtpModule::drafter(made.module); }, true}, device_sampling,
                                    kv_blocks);
}

TEST(MtpModule, ChangesNoAnswer) {
  for (const bool device_sampling : {false, true}) {
    const Statistics same = compare(device_sampling, 4, 200);
    EXPECT_GT(same.accepted_tokens, 100);
    EXPECT_EQ(same.accepted_tokens, same.draft_tokens) << "equal scores and random numbers draw equal tokens";
    const Statistics flatter = compare(device_sampling, 3, 200);
    EXPECT_GT(flatter.accepted_tokens, 50);
    EXPECT_LT(flatter.accepted_tokens, flatter.draft_tokens);
    EXPECT_GT(compare(device_sampling, 4, 16).preempted, 0);
  }
}

}  // namespace
}  // namespace pm::engine
