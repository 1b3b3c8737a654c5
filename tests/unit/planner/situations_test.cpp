// SPDX-License-Identifier: Apache-2.0
// Tests the decisions in situations.cpp, and properties of decisions in random situations.
#include "situations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace pm::test {
namespace {

/// Returns "Tensor x 2, Pipeline x 2" from the sizes alone.
std::string sizes_of(const Plan& plan) {
  std::string text;
  for (const auto& [name, size] :
       {std::pair{"Tensor", plan.tensor}, {"Pipeline", plan.pipeline}, {"Data", plan.data}}) {
    if (size > 1) text += (text.empty() ? "" : ", ") + std::string(name) + " x " + std::to_string(size);
  }
  return text.empty() ? "Tensor x 1" : text;
}

std::string all_words(const Decision& decision) {
  std::string text = decision.plan ? decision.plan->message : decision.refusal->message;
  for (const Rejected& one : decision.plan ? decision.plan->rejected : decision.refusal->rejected)
    text += "\n" + one.strategy + " (" + one.reason + "): " + one.message;
  return text;
}

class Situations : public testing::TestWithParam<Situation> {};

TEST_P(Situations, AreDecidedAsExpectedWithTheseWords) {
  const Situation& situation = GetParam();
  const Decision decision = decide(situation.metadata, situation.hardware, situation.constraints);
  ASSERT_NE(decision.plan.has_value(), decision.refusal.has_value());
  const std::string words = all_words(decision);
  SCOPED_TRACE(words);
  EXPECT_EQ(decision.plan ? sizes_of(*decision.plan) : "-", situation.choice);
  EXPECT_EQ(decision.plan ? decision.plan->reason : name_of(decision.refusal->reason), situation.reason);
  for (const std::string& part : situation.words) EXPECT_THAT(words, testing::HasSubstr(part));
  EXPECT_LE(decision.plan ? decision.plan->message.size() : decision.refusal->message.size(), 1800u);  // fits a status
}

std::string camel_case(const std::string& words) {
  std::string name;
  bool upper = true;
  for (const char c : words) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) name += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = !letter;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, Situations, testing::ValuesIn(situations()),
                         [](const auto& info) { return camel_case(info.param.name); });

/// Returns the estimate by which the objective compares; smaller is better.
double score(Objective objective, const Estimate& e) {
  return objective == Objective::Latency      ? e.token_seconds
         : objective == Objective::Throughput ? -e.tokens_per_second
                                              : static_cast<double>(e.bytes);
}

struct Anything {
  ModelMetadata metadata;
  Hardware hardware;
  PlanConstraints constraints;
};

Anything anything(int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Anything out;
  const int kind = pick(0, 3);
  if (kind == 0)
    out.metadata = encoder_decoder(pick(1, 8), pick(1, 8), 64 * pick(1, 12), pick(1, 4) * 4, pick(100, 60000));
  else if (kind == 1)
    out.metadata = repeating_encoder(pick(1, 12), 1, 96, 12);
  else
    out.metadata = random_decoder(random, pick(1, 8));
  out.hardware = {.kind = pick(0, 1) ? DeviceKind::GPU : DeviceKind::CPU,
                  .devices = pick(1, 16),
                  .devices_per_node = pick(0, 2) ? 0 : pick(1, 8),
                  .device_memory = gibi / 4};
  if (pick(0, 1)) out.hardware.link_latency = {std::pow(10.0, -pick(3, 6)), "spec"};
  if (pick(0, 1)) out.hardware.link_bandwidth = {std::pow(10.0, pick(8, 12)), "spec"};
  if (pick(0, 1)) out.hardware.memory_bandwidth = {std::pow(10.0, pick(9, 12)), "spec"};
  out.constraints.objective = static_cast<Objective>(pick(0, 2));
  out.constraints.max_concurrency = pick(1, 64);
  out.constraints.max_sequence_length = pick(0, 1) ? 0 : pick(1, 2000);
  if (pick(0, 3) == 0) out.constraints.pipeline = pick(1, 3);
  return out;
}

class Any : public testing::TestWithParam<int> {
 protected:
  const Anything any = anything(GetParam());
};

TEST_P(Any, NeverExceedsMemoryNorIsWorseThanWhatItRejected) {
  for (int64_t memory = gibi / 2; memory <= 256 * gibi; memory *= 4) {
    Hardware hardware = any.hardware;
    hardware.device_memory = memory;
    const Decision decision = decide(any.metadata, hardware, any.constraints);
    ASSERT_NE(decision.plan.has_value(), decision.refusal.has_value());
    if (!decision.plan) continue;
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + "\n" + all_words(decision));
    const Plan& plan = *decision.plan;
    EXPECT_EQ(plan.tensor * plan.pipeline * plan.data, hardware.devices);
    for (const RankPlan& rank : plan.ranks) EXPECT_LE(rank.predicted.total(), memory);
    for (const Rejected& one : plan.rejected) {
      const bool cannot = one.reason == Reason::DoesNotFit || one.reason == Reason::NotNeeded ||
                          one.reason == Reason::HoldsTooFew || !one.estimate;
      if (!cannot) {
        EXPECT_LE(score(plan.objective, plan.estimate), score(plan.objective, *one.estimate)) << one.strategy;
      }
      if (one.reason == Reason::DoesNotFit) {
        EXPECT_GT(one.estimate->bytes, memory) << one.strategy;
      }
      if (one.reason == Reason::HoldsTooFew) {
        EXPECT_LE(one.estimate->bytes, memory) << one.strategy;
      }
    }
  }
}

TEST_P(Any, PutsEachLayerOnOneStageOfEachDpRankAndSurvivesItsJson) {
  Hardware hardware = any.hardware;
  hardware.device_memory = 512 * gibi;
  const Decision decision = decide(any.metadata, hardware, any.constraints);
  if (!decision.plan) return;
  const Plan& plan = *decision.plan;
  EXPECT_EQ(to_json(plan_from_json(nlohmann::json::parse(to_json(plan).dump()))), to_json(plan));
  EXPECT_FALSE(describe(plan).empty());
  for (int dp_rank = 0; dp_rank < plan.data; ++dp_rank) {
    for (size_t stack = 0; stack < any.metadata.stacks.size(); ++stack) {
      int64_t end = 0;
      for (int stage = 0; stage < plan.pipeline; ++stage) {
        const auto& [name, range] =
            plan.ranks[static_cast<size_t>((dp_rank * plan.pipeline + stage) * plan.tensor)].layers[stack];
        EXPECT_EQ(name, any.metadata.stacks[stack].name);
        if (range.size() == 0) continue;
        EXPECT_EQ(range.begin, end);
        end = range.end;
      }
      EXPECT_EQ(end, any.metadata.stacks[stack].layers);
    }
  }
}

TEST_P(Any, NeverGetsWorseWithMoreMemoryAndNeverGoesBack) {
  std::vector<std::string> chosen;
  bool planned = false;
  double before = std::numeric_limits<double>::infinity();
  for (double memory = 0.3 * static_cast<double>(gibi); memory < 300.0 * static_cast<double>(gibi); memory *= 1.15) {
    Hardware hardware = any.hardware;
    hardware.device_memory = static_cast<int64_t>(memory);
    const Decision decision = decide(any.metadata, hardware, any.constraints);
    EXPECT_TRUE(decision.plan || !planned)
        << "fits less memory than " << memory << ", but not that; seed " << GetParam();
    if (!decision.plan) continue;
    planned = true;
    if (decision.plan->gathering) {  // chosen when memory is short, whatever its estimates
      EXPECT_TRUE(chosen.empty()) << "weights are gathered at " << memory << ", but stay with less; seed "
                                  << GetParam();
      continue;
    }
    const std::string sizes = sizes_of(*decision.plan);
    if (chosen.empty() || chosen.back() != sizes) {
      EXPECT_EQ(std::count(chosen.begin(), chosen.end(), sizes), 0) << sizes << " again, seed " << GetParam();
      chosen.push_back(sizes);
    }
    const double now = score(any.constraints.objective, decision.plan->estimate);
    EXPECT_LE(now, before) << "seed " << GetParam();
    before = now;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Any, testing::Range(1, 100));

TEST(Situation, ThereAreAtLeastForty) { EXPECT_GE(situations().size(), 40u); }

}  // namespace
}  // namespace pm::test
