// SPDX-License-Identifier: Apache-2.0
// Tests the drawing of a plan.
#include "planner/plan_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "models.h"

namespace pm {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t gib = int64_t{1} << 30;

Plan sample(const PlanConstraints& constraints, int devices) {
  const Hardware hardware{.devices = devices, .device_memory = 16 * gib, .memory_source = "spec"};
  return decide(test::gpt_neo_2_7b(), hardware, constraints).plan.value();
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(PlanSvg, HasABoxForEachRankWithItsLayersAndHeads) {
  const Plan plan = sample({.tensor = 3, .pipeline = 2}, 6);
  const std::string drawing = plan_svg(plan);
  EXPECT_EQ(count(drawing, "class=\"box\""), 6U);
  for (const char* text : {">stage 0<", ">stage 1<", ">rank 5<", "layers 0-15", "layers 16-31", "heads 0-6 of 20"})
    EXPECT_THAT(drawing, HasSubstr(text));
  EXPECT_EQ(count(drawing, "class=\"arrow\""), 1U);
  EXPECT_EQ(count(drawing, "not measured"), 6U);
  EXPECT_EQ(count(drawing, "<g"), count(drawing, "</g>"));
  EXPECT_THAT(drawing, Not(HasSubstr("http://www.w3.org/1999/xlink")));
}

TEST(PlanSvg, HasAPanelForEachDataParallelRank) {
  const std::string drawing = plan_svg(sample({.strategy = Strategy::Data}, 2));
  EXPECT_THAT(drawing, HasSubstr(">data 0, all layers<"));
  EXPECT_THAT(drawing, HasSubstr(">data 1, all layers<"));
}

TEST(PlanSvg, MeasuredBytesStandBesideThoseOfThePlan) {
  const Plan plan = sample({.tensor = 2}, 2);
  const std::string drawing = plan_svg(plan, {std::nullopt, Memory{.weights = gib, .runtime = gib / 2}});
  EXPECT_EQ(count(drawing, "not measured"), 1U);
  EXPECT_THAT(drawing, HasSubstr(">measured 1.5 GiB<"));
}

TEST(PlanSvg, NoBarIsWiderThanItsDevice) {
  const Plan plan = sample({.tensor = 2}, 2);
  const Memory much{.weights = 100 * gib, .kv = 1, .activations = 1, .communicator = 1, .runtime = 1};
  const std::string drawing = plan_svg(plan, {much, Memory{.kv = 1}});
  const std::regex bar(R"re(<rect x="(\d+)" y="\d+" width="(\d+)" height="14" (fill|class))re");
  int left = 0, right = 0;
  for (std::sregex_iterator one(drawing.begin(), drawing.end(), bar), end; one != end; ++one) {
    const int x = std::stoi((*one)[1]), width = std::stoi((*one)[2]);
    EXPECT_GE(width, 1);
    if ((*one)[3] == "class") {
      left = x;
      right = x + width;
    }
    EXPECT_GE(x, left);
    EXPECT_LE(x + width, right);
  }
  EXPECT_GT(right, 0);
}

TEST(PlanSvg, NamesOfAPolicyCannotBecomeMarkup) {
  Plan plan = sample({.tensor = 2}, 2);
  plan.message = "</desc><script>alert(1)</script>";
  plan.ranks[0].layers[0].first = "<b>";
  const std::string drawing = plan_svg(plan);
  EXPECT_THAT(drawing, Not(HasSubstr("<script")));
  EXPECT_THAT(drawing, HasSubstr("&lt;b&gt; layers 0-31"));
}

}  // namespace
}  // namespace pm
