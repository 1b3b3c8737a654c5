// SPDX-License-Identifier: Apache-2.0
// Tests the LoRA adapters of a spec: what pods mount and pass to the worker, what a plan keeps for them, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/object_text.h"
#include "controller/operator/children/pod_parts.h"
#include "tests/unit/controller/operator/built_pods.h"
#include "tests/unit/controller/operator/simulator/fake_operator.h"

namespace pm::op::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string image = "registry.example.com/adapters@sha256:" + std::string(64, 'a');

Json with_adapters(Json model, const Json& adapters) {
  model["spec"]["model"]["adapters"] = adapters;
  return model;
}

/// Adapters on the model's PVC, twice on another one, and in an image.
Json everywhere() {
  const auto from = [](const char* name, const std::string& source) {
    return Json{{"name", name}, {"source", source}};
  };
  Json packed = from("packed", "oci://" + image);
  packed["path"] = "lora/packed";
  return Json::array(
      {from("near", "pvc://models/near"), from("sql", "pvc://others/a/sql"), from("chat", "pvc://others"), packed});
}

/// Returns the values of `--adapter`, in order.
std::vector<std::string> named(const Json& pod) {
  std::vector<std::string> out;
  const Json& args = pod["spec"]["containers"][0]["args"];
  for (size_t i = 0; i + 1 < args.size(); ++i)
    if (args[i] == "--adapter") out.push_back(args[i + 1]);
  return out;
}

int volumes_of(const Json& pod, const std::string& claim) {
  int count = 0;
  for (const Json& volume : pod["spec"]["volumes"])
    count += k8s::string_at(volume, "/persistentVolumeClaim/claimName") == claim ? 1 : 0;
  return count;
}

TEST(Adapters, EachPodMountsEachVolumeOnceAndNamesTheFolders) {
  const Made made(with_adapters(owned_model(4), everywhere()), 2);
  ASSERT_EQ(made.spec.source.claim, "models");
  for (const Json& pod : {made.pod(0, 0), made.pod(0, 1), inspect_pod(made.owner, made.spec, made.worker, {})}) {
    EXPECT_EQ(named(pod), (std::vector<std::string>{"near=/model/near", "sql=/adapters/1/a/sql", "chat=/adapters/1",
                                                    "packed=/adapters/3/lora/packed"}));
    EXPECT_EQ(volumes_of(pod, "models"), 1);
    EXPECT_EQ(volumes_of(pod, "others"), 1);
    EXPECT_THAT(
        pod["spec"]["volumes"].get<std::vector<Json>>(),
        Contains(Json{{"name", "adapters-3"}, {"image", {{"reference", image}, {"pullPolicy", "IfNotPresent"}}}}));
    EXPECT_THAT(pod["spec"]["containers"][0]["volumeMounts"].get<std::vector<Json>>(),
                Contains(Json{{"name", "adapters-1"}, {"mountPath", "/adapters/1"}, {"readOnly", true}}));
  }
}

TEST(Adapters, AnInspectionOfAModelOnTheHubMountsThePvcOfItsAdapters) {
  Json model = with_adapters(owned_model(), Json::array({{{"name", "sql"}, {"source", "pvc://models/sql"}}}));
  model["spec"]["model"]["source"] = "hf://org/name";
  model["spec"]["model"]["cache"]["claimName"] = "models";
  const Spec spec = parse_spec(model);
  const Json inspects = inspect_pod(parse_owner(model), spec, settings(), {});
  EXPECT_EQ(named(inspects), std::vector<std::string>{"sql=/adapters/0/sql"});
  EXPECT_EQ(volumes_of(inspects, "models"), 1);
  const Json fetches = fetch_pod(parse_owner(model), spec, settings(), std::string(40, 'c'));
  EXPECT_THAT(fetches.dump(), Not(HasSubstr("/adapters")));
}

TEST(Adapters, OtherAdaptersAreOtherInputsAndWithoutAnyNothingChanges) {
  const Json model = owned_model();
  const Owner owner = parse_owner(model);
  const auto hashes = [&](const Json& changed) {
    const Spec spec = parse_spec(changed);
    return std::pair(source_hash(spec, owner, ""), inputs_hash(spec, owner, ""));
  };
  const auto none = hashes(model), empty = hashes(with_adapters(model, Json::array())),
             some = hashes(with_adapters(model, everywhere()));
  EXPECT_EQ(none, empty);
  EXPECT_NE(none.first, some.first) << "they are inspected with the checkpoint";
  EXPECT_NE(none.second, some.second) << "the plan keeps memory for them";
  Json moved = everywhere();
  moved[1]["source"] = "pvc://others/a/sql2";
  EXPECT_NE(some, hashes(with_adapters(model, moved)));
}

TEST(Adapters, AreRefusedByName) {
  const auto refusal = [](const Json& adapters, const Json& names = Json::array()) {
    Json model = with_adapters(owned_model(), adapters);
    if (!names.empty()) model["spec"]["serving"]["modelNames"] = names;
    try {
      parse_spec(model);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Json sql{{"name", "sql"}, {"source", "pvc://models/sql"}};
  EXPECT_EQ(refusal(Json::array({sql})), "accepted");
  EXPECT_THAT(refusal(Json::array({sql, sql})), StartsWith("spec.model.adapters.1.name is 'sql', which the model or"));
  EXPECT_THAT(refusal(Json::array({sql}), {"base", "sql"}), HasSubstr("each has its own name"));
  EXPECT_THAT(refusal(Json::array({{{"name", "m"}, {"source", "pvc://models/m"}}})), HasSubstr("is 'm', which"));
  EXPECT_EQ(refusal(Json::array({{{"name", "m"}, {"source", "pvc://models/m"}}}), {"base"}), "accepted");
  EXPECT_THAT(refusal(Json::array({{{"name", "a=b"}, {"source", "pvc://models/m"}}})), HasSubstr("is 'a=b', expected"));
  EXPECT_THAT(refusal(Json::array({{{"name", "hub"}, {"source", "hf://org/lora"}}})),
              HasSubstr("expected pvc://CLAIM/PATH or oci://REGISTRY/NAME@sha256:HEX"));
  EXPECT_THAT(refusal(Json::array({{{"name", "up"}, {"source", "pvc://models/../x"}}})),
              HasSubstr("must not contain .."));
  EXPECT_THAT(refusal(Json::array({{{"name", "tag"}, {"source", "oci://registry/x:1"}}})), HasSubstr("by its digest"));
}

TEST(Adapters, APodHasTheMemoryOfThoseOfItsRanks) {
  constexpr int64_t gibi = int64_t{1} << 30, mebi = int64_t{1} << 20;
  Json model = owned_model();
  model["spec"].erase("resources");
  const Spec spec = parse_spec(model);
  const auto memory_with = [&](int64_t elements) {
    ModelMetadata metadata = metadata_from_json(small_metadata());
    metadata.adapter_elements = elements;
    const Hardware hardware{.devices = 2, .device_memory = 2 * gibi};
    const Decision decision = decide(metadata, hardware, {.max_sequence_length = 256, .max_concurrency = 4});
    return make_pod_layout(spec, decision.plan.value()).memory;
  };
  EXPECT_EQ(memory_with(mebi) - memory_with(0), 2 * 4 * mebi) << "two ranks, and numbers of four bytes";
}

/// Adapters on the PVC that the simulated cluster has.
Json beside_the_model() {
  return Json::array(
      {{{"name", "near"}, {"source", "pvc://models/near"}}, {{"name", "nearer"}, {"source", "pvc://models/near/er"}}});
}

class AdaptersOfAModel : public testing::Test {
 protected:
  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
};

TEST_F(AdaptersOfAModel, OneThatCannotBeServedIsNamedBeforeAnyDeviceIsRequested) {
  cluster.inspect_failure = Json{{"reason", "ModelUnreadable"},
                                 {"message", "/model/near/er/adapter_config.json: use_dora is true, expected false"}};
  cluster.apply(with_adapters(model_named("m"), beside_the_model()));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ModelUnreadable");
  EXPECT_EQ(
      k8s::string_at(*cluster.condition("Planned"), "/message"),
      "adapter nearer of spec.model.adapters: /model/near/er/adapter_config.json: use_dora is true, expected false");
  EXPECT_TRUE(cluster.with_role("pods", "worker").empty());
  cluster.inspect_failure.reset();
  Json mended = beside_the_model();
  mended.erase(1);
  cluster.apply(with_adapters(model_named("m"), mended));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(AdaptersOfAModel, ReplicasGoOnWhileANewOneCannotBeServed) {
  cluster.apply(model_named("m"));
  ASSERT_TRUE(fake_operator.settle());
  const std::vector<std::string> before = cluster.pod_names();
  cluster.inspect_failure = Json{{"reason", "ModelUnreadable"}, {"message", "/model/near: no adapter_config.json"}};
  cluster.apply(with_adapters(model_named("m"), beside_the_model()));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ModelUnreadable");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Planned"), "/message"), StartsWith("adapter near of spec.model"));
  EXPECT_TRUE(cluster.is_true("Ready"));
  for (const Json& pod : cluster.with_role("pods", "worker")) EXPECT_THAT(before, Contains(k8s::key_of(pod).name));
}

TEST_F(AdaptersOfAModel, ANewOneIsARollingUpdate) {
  const auto hash = [&] { return k8s::label_of(cluster.with_role("pods", "worker").at(0), label::pod_hash); };
  cluster.apply(model_named("m"));
  ASSERT_TRUE(fake_operator.settle());
  ASSERT_TRUE(cluster.is_true("Ready"));
  const std::string before = hash();
  cluster.apply(with_adapters(model_named("m"), beside_the_model()));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  EXPECT_EQ(cluster.with_role("pods", "worker").size(), 1u);
  EXPECT_NE(hash(), before);
  EXPECT_TRUE(cluster.violations.empty());
}

TEST_F(AdaptersOfAModel, AMissingPvcIsNamedAndWaitedFor) {
  cluster.apply(with_adapters(model_named("m"), everywhere()));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ClaimNotFound");
  EXPECT_THAT(k8s::string_at(*cluster.condition("Planned"), "/message"), HasSubstr("\"others\" not found"));
  EXPECT_FALSE(cluster.is_true("Stalled"));
}

}  // namespace
}  // namespace pm::op::test
