// SPDX-License-Identifier: Apache-2.0
// Tests that a manifest is planned as the controller would plan it.
#include "controller/plugin/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/operator/api/spec.h"
#include "controller/operator/children/desired.h"
#include "tests/unit/planner/models.h"

namespace pm::plugin::test {
namespace {

using k8s::Json;
using testing::HasSubstr;

ModelMetadata metadata() {
  return pm::test::decoder({.layers = 2,
                            .hidden = 512,
                            .heads = 4,
                            .kv_heads = 4,
                            .head_dim = 128,
                            .ffn = 2048,
                            .vocab = 1000,
                            .positions = 512});
}

Json manifest(const std::string& memory = "4Gi") {
  return Json::parse(R"({"apiVersion": "parallelmodel.dev/v1alpha1", "kind": "ParallelModel",
    "metadata": {"name": "new", "namespace": "ns"},
    "spec": {"model": {"source": "hf://org/name"}, "devices": {"count": 2, "type": "CPU"},
             "resources": {"memory": ")" +
                     memory + R"(", "cpu": 2}, "replicas": 1,
             "serving": {"maxSequenceLength": 256, "maxConcurrency": 4, "maxQueue": 16}}})");
}

std::optional<Json> nothing(const k8s::Request&) { return std::nullopt; }

TEST(DryRun, DescribesThePlanThatTheControllerWouldMake) {
  const DryRun result = dry_run(manifest(), metadata(), {}, nothing);
  EXPECT_TRUE(result.fits);
  EXPECT_THAT(result.text, HasSubstr("Tensor x 2"));
  EXPECT_THAT(result.text, HasSubstr("not Data x 2 (Slower)"));
}

TEST(DryRun, SaysWhyNothingFits) {
  const DryRun result = dry_run(manifest("64Mi"), metadata(), {}, nothing);
  EXPECT_FALSE(result.fits);
  EXPECT_THAT(result.text, HasSubstr("DoesNotFit: "));
}

TEST(DryRun, NamesTheFieldOfASpecThatCannotBeRead) {
  Json broken = manifest();
  broken["spec"]["devices"]["count"] = "two";
  EXPECT_THROW(dry_run(broken, metadata(), {}, nothing), std::invalid_argument);
}

TEST(DryRun, ReadsTheSlicesOfDevicesThatNoNodeOffers) {
  Json model = manifest();
  model["spec"]["devices"] = {{"count", 2}, {"type", "GPU"}, {"claim", {{"deviceClassName", "gpus"}}}};
  std::vector<std::string> paths;
  const auto read = [&](const k8s::Request& request) -> std::optional<Json> {
    paths.push_back(k8s::path_of(request));
    if (paths.size() == 1) return Json{{"metadata", {{"name", "gpus"}}}};
    const Json device{{"capacity", {{"memory", {{"value", "80Gi"}}}}}};
    return Json{{"items", Json::array({{{"spec", {{"allNodes", true}, {"devices", Json::array({device})}}}}})}};
  };
  const auto node = std::make_shared<const Json>(Json{{"metadata", {{"name", "a"}}}});
  const DryRun result = dry_run(model, metadata(), {node}, read);
  EXPECT_TRUE(result.fits) << result.text;
  EXPECT_EQ(paths, (std::vector<std::string>{"/apis/resource.k8s.io/v1/deviceclasses/gpus",
                                             "/apis/resource.k8s.io/v1/resourceslices?limit=500"}));
  EXPECT_THAT(dry_run(model, metadata(), {node}, nothing).text, HasSubstr("set spec.devices.memory"));
}

TEST(KnownMetadata, ComesFromThePlanOfTheSameCheckpointOnly) {
  Json other = manifest();
  other["metadata"]["name"] = "old", other["metadata"]["uid"] = "u";
  const op::Spec spec = op::parse_spec(other);
  const Decision decision = decide(metadata(), {.devices = 2, .device_memory = int64_t{2} << 30}, {});
  const Json map =
      op::plan_config_map(op::parse_owner(other), spec, metadata(), *decision.plan, "image:1", std::nullopt);
  other["status"]["plan"]["planHash"] = op::stored_plan(map).hash;
  const Json models{{"items", {other}}}, maps{{"items", {map}}};
  const auto found = known_metadata(manifest(), models, maps);
  ASSERT_TRUE(found);
  EXPECT_EQ(to_json(*found), to_json(metadata()));
  for (const char* field : {"source", "revision", "policyRef", "draft"}) {
    Json different = manifest();
    different["spec"]["model"][field] = "another";
    EXPECT_FALSE(known_metadata(different, models, maps)) << field;
  }
  EXPECT_FALSE(known_metadata(manifest(), models, Json{{"items", Json::array()}})) << "the plan is gone";
  EXPECT_FALSE(known_metadata(manifest(), Json(), Json()));
}

}  // namespace
}  // namespace pm::plugin::test
