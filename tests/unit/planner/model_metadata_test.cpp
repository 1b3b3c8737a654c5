// SPDX-License-Identifier: Apache-2.0
// Tests model metadata as JSON: complete, small, and parsed as untrusted input.
#include "planner/model_metadata.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models.h"

namespace pm {
namespace {

std::string refusal(const nlohmann::json& value) {
  try {
    metadata_from_json(value);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ModelMetadata, SurviveTheRoundTrip) {
  ModelMetadata metadata = test::gpt_neo_2_7b();
  metadata.revision = "0123abc";
  metadata.parts.push_back({"decoder", 3, 2, Axis::Groups, 16, 5, DType::F32, true});
  metadata.parts.push_back(
      {"decoder",
       4,
       1,
       Axis::None,
       1,
       5,
       DType::F32,
       true,
       {{"decoder", stack_output}, {"decoder", 6, 5, 3}, {"decoder", 5}, {"decoder", 9, 2}, {"", stack_input}}});
  metadata.parts.push_back(
      {"decoder", 0, 2, Axis::Ffn, 10240, 5, DType::F16, false, {}, {4, 1, 1}, {.experts = 128, .per_token = 8}});
  metadata.stacks.push_back({"encoder", 6, 512, 8, 2, 64, 2048, 32128, 0, false, 64, 512, 7, true, 5, true});
  metadata.stacks.back().rows_per_token = 2;
  EXPECT_EQ(metadata_from_json(nlohmann::json::parse(to_json(metadata).dump())), metadata);
}

/// A stack whose every sixth layer has wider heads, and whose last layers reuse keys.
ModelMetadata with_layouts(int layers) {
  ModelMetadata metadata = test::gpt_neo_2_7b();
  metadata.stacks = {{"decoder", layers, 2560, 32, 16, 256, 10240, 50257, 2048, true}};
  metadata.parts.clear();
  StackMetadata& stack = metadata.stacks[0];
  stack.layouts = {{32, 4, 512, {{5, layers / 6 - 1, 6}}}};
  stack.reuses = {{layers - 7, 1, {{layers - 1, 1, 1}}}};
  stack.layer_inputs = 256;
  for (int first = 0; first < layers; first += 6)
    metadata.parts.push_back({"decoder", first, 5, Axis::Heads, 32, 1'000'000, DType::F16, false});
  for (int first = 5; first < layers; first += 6) {
    metadata.parts.push_back({"decoder", first, 1, Axis::Heads, 32, 2'000'000, DType::F16, false});
    metadata.parts.back().layout = 1;
  }
  return metadata;
}

TEST(ModelMetadata, OfLayersThatDifferInTurnSurviveTheRoundTripAndAreShort) {
  const ModelMetadata metadata = with_layouts(60);
  const nlohmann::json value = to_json(metadata);
  EXPECT_EQ(value.at("parts").size(), 2U);
  EXPECT_EQ(value.at("parts")[1].at("i")[9], nlohmann::json::array({59, 1}));
  EXPECT_EQ(metadata_from_json(nlohmann::json::parse(value.dump())), metadata);
  EXPECT_EQ(cached_layers(metadata.stacks[0], 0), 50);
  EXPECT_EQ(cached_layers(metadata.stacks[0], 1), 9);
}

TEST(ModelMetadata, OfLayoutsThatDoNotFitTheStackAreRefusedByName) {
  const auto with = [](const char* key, const nlohmann::json& value) {
    nlohmann::json whole = to_json(with_layouts(12));
    whole["stacks"][0][key] = value;
    return refusal(whole);
  };
  EXPECT_NE(with("g", {{32, 5, 512, nlohmann::json::array()}}).find("a divisor of the 32 heads"), std::string::npos);
  EXPECT_NE(with("g", {{32, 4, 512, {{5, 2, 7}}}}).find("layers of the stack"), std::string::npos);
  EXPECT_NE(with("w", {{3, 2, {{11, 1, 1}}}}).find("stacks[0].w"), std::string::npos);
  EXPECT_NE(with("w", {{3, 1, {{0, 12, 1}}}}).find("at most the 12 of the stack"), std::string::npos);
  nlohmann::json whole = to_json(with_layouts(12));
  nlohmann::json plain = whole;
  plain["stacks"][0].erase("g");
  plain["stacks"][0].erase("w");
  EXPECT_NE(refusal(plain).find("the number of a layout"), std::string::npos) << refusal(plain);
  whole["parts"][0]["i"] = {{0, 5, 1}};
  EXPECT_NE(refusal(whole).find("[first layer, count]"), std::string::npos) << refusal(whole);
}

TEST(ModelMetadata, OfSixtyDifferentRowsFitATerminationMessage) {
  ModelMetadata metadata = test::gpt_neo_2_7b();
  metadata.parts.clear();
  for (int i = 0; i < 60; ++i)
    metadata.parts.push_back({"decoder", i, 1 + i % 7, Axis::Ffn, 10240, 26'214'400, DType::F16, false});
  EXPECT_LE(to_json(metadata).dump().size(), 4096u);
}

TEST(ModelMetadata, WithMoreExpertsForATokenThanThereAreAreRefused) {
  nlohmann::json value = to_json(test::gpt_neo_2_7b());
  value["parts"][2]["r"] = {4, 5};
  EXPECT_NE(refusal(value).find("token"), std::string::npos) << refusal(value);
  value["parts"][2]["r"] = {4};
  EXPECT_NE(refusal(value).find("[experts, experts of a token]"), std::string::npos) << refusal(value);
}

TEST(ModelMetadata, UnknownKeysAreIgnored) {
  nlohmann::json value = to_json(test::gpt_neo_2_7b());
  value["future"] = {{"deep", 1}};
  value["parts"][0]["new"] = "thing";
  EXPECT_EQ(refusal(value), "accepted");
}

TEST(ModelMetadata, OfTheWrongKindAreRefusedByName) {
  EXPECT_NE(refusal(nlohmann::json::array()).find("metadata"), std::string::npos);
  EXPECT_NE(refusal({{"model_type", 3}}).find("metadata.model_type: found 3"), std::string::npos);
  EXPECT_NE(refusal(nlohmann::json::object()).find("metadata.model_type is missing"), std::string::npos);
  const nlohmann::json good = to_json(test::gpt_neo_2_7b());
  const auto with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    return refusal(bad);
  };
  EXPECT_NE(with("/parts/2/u", -1).find("metadata.parts[2].u: found -1"), std::string::npos);
  EXPECT_NE(with("/parts/2/u", 0).find("metadata.parts[2].u"), std::string::npos);
  EXPECT_NE(with("/parts/2/u", 2.5).find("metadata.parts[2].u"), std::string::npos);
  EXPECT_NE(with("/parts/2/u", 18446744073709551615ull).find("metadata.parts[2].u"), std::string::npos);
  EXPECT_NE(with("/parts/2/x", "hearts").find("hearts"), std::string::npos);
  for (const char* axis : {"heads", "kv", "kv_rows"}) {
    nlohmann::json bad = good;
    bad["parts"][2]["x"] = axis, bad["parts"][2]["s"] = "nowhere";
    EXPECT_NE(refusal(bad).find("metadata.parts[2].s: found \"nowhere\""), std::string::npos) << axis;
  }
  EXPECT_NE(with("/stacks/0/k", 3).find("metadata.stacks[0].k"), std::string::npos);
  EXPECT_NE(with("/stacks/0/a", 1 << 20).find("metadata.stacks[0].a"), std::string::npos);
  EXPECT_NE(with("/dtype", "F8_E4M3").find("F8_E4M3"), std::string::npos);
  EXPECT_NE(with("/architecture", "a\nb").find("metadata.architecture"), std::string::npos);
  EXPECT_NE(with("/architecture", std::string(5000, 'x')).find("5000 bytes"), std::string::npos);
  EXPECT_NE(with("/parts", std::string("none")).find("metadata.parts"), std::string::npos);
}

TEST(ModelMetadata, WithUnknownPositionsAreRefusedByName) {
  const nlohmann::json good = to_json(test::gpt_neo_2_7b());
  const auto with = [&](int part, const char* key, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad["parts"][part][key] = value;
    return refusal(bad);
  };
  EXPECT_EQ(with(0, "a", {{"decoder", 0, 32}, {"decoder", 1, 16, 2}, {"", -1}}), "accepted");
  EXPECT_NE(with(0, "a", {{"decoder", 0, 33}})
                .find("metadata.parts[0].a: found layer 32 of \"decoder\", expected one of its 32 layers"),
            std::string::npos);
  EXPECT_NE(with(0, "a", {{"decoder", 1, 4096, 4096}}).find("metadata.parts[0].a: found layer 16773121"),
            std::string::npos);
  EXPECT_NE(with(0, "a", nlohmann::json::array({nlohmann::json::array({"encoder", -1})}))
                .find("metadata.parts[0].a: found a place in the stack \"encoder\""),
            std::string::npos);
  EXPECT_NE(with(0, "a", nlohmann::json::array({nlohmann::json::array({"", 3})})).find("metadata.parts[0].a"),
            std::string::npos);
  EXPECT_NE(with(0, "a", nlohmann::json::array({nlohmann::json::array({"decoder", -3})}))
                .find("metadata.parts[0].a[0].first: found -3"),
            std::string::npos);
  EXPECT_NE(with(0, "a", {{"decoder", -1, 2}}).find("metadata.parts[0].a"), std::string::npos);
  EXPECT_NE(with(0, "a", nlohmann::json::array({"decoder"}))
                .find("metadata.parts[0].a[0]: found \"decoder\", expected [stack, first, count, every]"),
            std::string::npos);
  EXPECT_NE(with(2, "a", nlohmann::json::array({nlohmann::json::array({"decoder", 1})}))
                .find("metadata.parts[2].n: found 32 layers, expected 1"),
            std::string::npos);
  EXPECT_NE(with(2, "n", 33).find("metadata.parts[2]: found layer 32"), std::string::npos);
  EXPECT_NE(with(2, "s", "encoder").find("metadata.parts[2].s: found \"encoder\", expected a stack with heads"),
            std::string::npos);
  EXPECT_NE(with(4, "s", "encoder").find("metadata.parts[4]: found a place in the stack \"encoder\""),
            std::string::npos);
  nlohmann::json twice = good;
  twice["stacks"].push_back(twice["stacks"][0]);
  EXPECT_NE(refusal(twice).find("metadata.stacks[1]: found a second \"decoder\""), std::string::npos);
}

TEST(ModelMetadata, WhoseBytesDoNotAddUpIn64BitsAreRefused) {
  nlohmann::json value = to_json(test::gpt_neo_2_7b());
  for (auto& part : value["parts"]) part["e"] = int64_t{1} << 40, part["n"] = 1 << 16;
  EXPECT_NE(refusal(value).find("2^58"), std::string::npos);
}

}  // namespace
}  // namespace pm
