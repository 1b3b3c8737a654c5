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

TEST(DryRun, DescribesThePlanThatTheControllerWouldMake) {
  const DryRun result = dry_run(manifest(), metadata(), {});
  EXPECT_TRUE(result.fits);
  EXPECT_THAT(result.text, HasSubstr("Tensor x 2"));
  EXPECT_THAT(result.text, HasSubstr("not Data x 2 (Slower)"));
}

TEST(DryRun, SaysWhyNothingFits) {
  const DryRun result = dry_run(manifest("64Mi"), metadata(), {});
  EXPECT_FALSE(result.fits);
  EXPECT_THAT(result.text, HasSubstr("DoesNotFit: "));
}

TEST(DryRun, NamesTheFieldOfASpecThatCannotBeRead) {
  Json broken = manifest();
  broken["spec"]["devices"]["count"] = "two";
  EXPECT_THROW(dry_run(broken, metadata(), {}), std::invalid_argument);
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
  for (const char* field : {"source", "revision", "policyRef"}) {
    Json different = manifest();
    different["spec"]["model"][field] = "another";
    EXPECT_FALSE(known_metadata(different, models, maps)) << field;
  }
  EXPECT_FALSE(known_metadata(manifest(), models, Json{{"items", Json::array()}})) << "the plan is gone";
  EXPECT_FALSE(known_metadata(manifest(), Json(), Json()));
}

}  // namespace
}  // namespace pm::plugin::test
