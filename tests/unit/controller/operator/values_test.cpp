// SPDX-License-Identifier: Apache-2.0
// Tests the small pure parts: texts, hashes, patches, specs, hardware, progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "controller/operator/api/json_patch.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/pod_layout.h"
#include "controller/operator/observed/progress.h"
#include "controller/operator/planning/hardware.h"
#include "controller/operator/status/model_status.h"
#include "tests/unit/controller/operator/simulator/fake_cluster.h"

namespace pm::op::test {
namespace {

using testing::HasSubstr;

TEST(Text, IsCutBetweenCharactersAndCleanedOfControls) {
  EXPECT_EQ(clip("short", 10), "short");
  EXPECT_EQ(clip("a\nb\tc\x7F", 10), "a b c");
  EXPECT_EQ(clip("abcdefghij", 8), "abcde...");
  EXPECT_EQ(clip("aaaa\xC3\xA4\xC3\xA4\xC3\xA4", 9), "aaaa\xC3\xA4...");
  EXPECT_EQ(clip("aaaaa\xC3\xA4\xC3\xA4", 9), "aaaaa\xC3\xA4\xC3\xA4");
  for (size_t bytes = 0; bytes < 12; ++bytes) {
    EXPECT_NO_THROW((void)Json(clip("\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF0\x9F\x98\x80", bytes)).dump()) << bytes;
  }
}

TEST(Text, OnlyCamelCaseWordsAreReasons) {
  EXPECT_EQ(reason_word("RankLost", "X"), "RankLost");
  for (const char* bad : {"", "rank lost", "9Lives", "a-b", "<script>"}) EXPECT_EQ(reason_word(bad, "X"), "X");
}

TEST(Hash, IsStableAndFitForNames) {
  EXPECT_EQ(short_hash({{"a", 1}, {"b", {1, 2}}}), short_hash(Json::parse(R"({"b":[1,2],"a":1})")));
  EXPECT_EQ(short_hash(Json::object()), "iqjw7i2vwn") << "base32 of SHA-256 of {}: it names objects in clusters";
  EXPECT_NE(short_hash(1), short_hash("1"));
}

TEST(Patch, TurnsOneIntoTheOther) {
  const Json from = Json::parse(R"({"a":1,"b":{"c":2,"d":[1,2]},"gone":true,"same":{"x":1}})");
  const Json to = Json::parse(R"({"a":2,"b":{"d":[3]},"same":{"x":1},"new":{"y":null}})");
  const Json patch = merge_patch(from, to);
  EXPECT_FALSE(patch.contains("same"));
  EXPECT_TRUE(patch["gone"].is_null() && patch["b"]["c"].is_null());
  EXPECT_EQ(merge_patch(to, to), Json::object());
  Json applied = from;
  applied.merge_patch(patch);
  EXPECT_EQ(applied["b"], to["b"]);
  EXPECT_FALSE(applied.contains("gone"));
  EXPECT_EQ(merge_patch(Json(), {{"a", 1}}), Json({{"a", 1}}));
}

TEST(Covers, IgnoresWhatServersAdd) {
  const Json live = Json::parse(R"({"ports":[{"port":80,"protocol":"TCP"}],"type":"ClusterIP","clusterIP":"1.2.3.4"})");
  EXPECT_TRUE(covers(live, Json::parse(R"({"ports":[{"port":80}],"type":"ClusterIP"})")));
  EXPECT_FALSE(covers(live, Json::parse(R"({"ports":[{"port":81}]})")));
  EXPECT_FALSE(covers(live, Json::parse(R"({"ports":[]})")));
  EXPECT_FALSE(covers(live, Json::parse(R"({"selector":{}})")));
}

TEST(ChangedValues, AreThoseOfFieldsThatBothHave) {
  const Json live = Json::parse(R"({"number":1,"word":"a","list":[1],"inner":{"on":true,"kept":2},"server":"x"})");
  const auto change = [&](const char* wanted) { return changed_values(live, Json::parse(wanted)); };
  EXPECT_EQ(change(R"({"number":1,"list":[1]})"), Json::object());
  EXPECT_EQ(change(R"({"number":2,"word":"a","inner":{"on":false}})"),
            Json::parse(R"({"number":2,"inner":{"on":false}})"));
  for (const char* more : {R"({"other":1})", R"({"list":[2]})", R"({"inner":{"new":1}})", R"({"inner":1})",
                           R"({"number":{"a":1}})", R"({"number":[1]})"})
    EXPECT_EQ(change(more), std::nullopt) << more;
}

TEST(Spec, SourceIsAClaimAndAPath) {
  const auto source = [](const std::string& text) {
    Json model = model_named("m");
    model["spec"]["model"]["source"] = text;
    return parse_spec(model).source;
  };
  EXPECT_EQ(source("pvc://models/a/b/").path, "a/b");
  EXPECT_EQ(source("pvc://models").path, "");
  EXPECT_EQ(source("pvc://models").claim, "models");
  for (const char* bad : {"s3://gpt2", "hf://", "hf://a/b/c", "hf://../a", "pvc://", "pvc://a/../b", "/etc", ""})
    EXPECT_THROW((void)source(bad), std::invalid_argument) << bad;
}

TEST(Spec, AModelInAnImageIsNamedByItsDigest) {
  const std::string digest = "sha256:" + std::string(64, 'a'),
                    reference = "registry.example.com:5000/models/gpt2@" + digest;
  Json model = model_named("m");
  const auto source = [&](const std::string& text) {
    model["spec"]["model"]["source"] = text;
    return parse_spec(model).source;
  };
  EXPECT_EQ(source("oci://" + reference).image, reference);
  EXPECT_EQ(source("oci://" + reference).digest(), digest);
  EXPECT_EQ(source("oci://" + reference).path, "");
  EXPECT_EQ(source("pvc://models").digest(), "");
  model["spec"]["model"]["path"] = "models/gpt2/";
  EXPECT_EQ(source("oci://" + reference).path, "models/gpt2");
  for (const std::string& bad : {"oci://" + reference.substr(0, reference.size() - 1), "oci://" + reference + "0",
                                 std::string("oci://registry.example.com/gpt2:latest"), "oci://@" + digest,
                                 "oci://a@sha256:" + std::string(64, 'A')})
    EXPECT_THROW((void)source(bad), std::invalid_argument) << bad;
  model["spec"]["model"]["path"] = "a/../../b";
  EXPECT_THROW((void)source("oci://" + reference), std::invalid_argument);
}

TEST(Spec, AModelOnTheHubComesWithAClaimOfItsOwnOrOfTheUser) {
  Json model = model_named("m");
  model["spec"]["model"] = {{"source", "hf://org/name"}};
  const Source own = parse_spec(model).source;
  EXPECT_EQ(own.claim, "m-cache");
  EXPECT_TRUE(own.hub->own_claim && own.hub->retain);
  EXPECT_EQ(own.hub->revision, "main");
  EXPECT_EQ(own.hub->id, "org/name");
  EXPECT_EQ(own.hub->token_secret, "");
  model["spec"]["model"].update(
      {{"revision", "v2"}, {"tokenSecretRef", {{"name", "hf"}}}, {"cache", {{"claimName", "shared"}}}});
  const Source shared = parse_spec(model).source;
  EXPECT_EQ(shared.claim, "shared");
  EXPECT_FALSE(shared.hub->own_claim);
  EXPECT_EQ(shared.hub->revision, "v2");
  EXPECT_EQ(shared.hub->token_key, "token");
  model["spec"]["model"]["cache"] = {{"size", "much"}};
  EXPECT_THROW((void)parse_spec(model), std::invalid_argument);
}

TEST(Spec, DefaultsAreThoseOfTheSchema) {
  const Spec spec = parse_spec({{"spec", {{"model", {{"source", "pvc://m/x"}}}, {"devices", {{"count", 2}}}}}});
  EXPECT_EQ(spec.devices.resource, "nvidia.com/gpu");
  EXPECT_EQ(spec.replicas, 1);
  EXPECT_EQ(spec.update.drain.count(), 60);
  EXPECT_EQ(spec.failure.max_restarts, 6);
  EXPECT_EQ(spec.service.port, 8000);
  Json model = model_named("m");
  model["spec"]["devices"].erase("resource");
  EXPECT_EQ(parse_spec(model).devices.resource, "") << "a CPU device is no extended resource";
  EXPECT_EQ(parse_spec(model).cpu_milli, 2000);
}

TEST(Spec, WhatNamesFactsAndPlansStaysTheSameOverVersions) {
  Json model = model_named("m");
  model["metadata"]["uid"] = "u";
  const Spec spec = parse_spec(model);
  const Owner owner = parse_owner(model);
  EXPECT_EQ(source_hash(spec, owner, ""), "qeznxzcxb5")
      << "another name would inspect and replan every model that runs";
  EXPECT_EQ(inputs_hash(spec, owner, ""), "kvi4vxd2nh");
  EXPECT_NE(source_hash(spec, owner, "m-policy-a"), source_hash(spec, owner, "m-policy-b"));
  EXPECT_NE(inputs_hash(spec, owner, "m-policy-a"), inputs_hash(spec, owner, ""));
}

TEST(Spec, StrategySizesAndObjectiveBecomeWishesAndNameAnotherPlan) {
  Json model = model_named("m", 8);
  model["metadata"]["uid"] = "u";
  const std::string before = inputs_hash(parse_spec(model), parse_owner(model), "");
  model["spec"]["objective"] = "Throughput";
  model["spec"]["parallelism"] = {
      {"strategy", "Pipeline"}, {"sizes", {{"tensor", 2}, {"pipeline", 4}, {"data", 1}}}, {"microBatches", 8}};
  const PlanConstraints constraints = planner_constraints(parse_spec(model));
  EXPECT_EQ(constraints.strategy, Strategy::Pipeline);
  EXPECT_EQ(constraints.objective, Objective::Throughput);
  EXPECT_EQ((std::vector<int>{constraints.tensor.value(), constraints.pipeline.value(), constraints.data.value(),
                              constraints.micro_batches.value()}),
            (std::vector<int>{2, 4, 1, 8}));
  std::set<std::string> hashes{before};
  for (const char* path :
       {"/spec/objective", "/spec/parallelism/strategy", "/spec/parallelism/sizes/tensor",
        "/spec/parallelism/sizes/pipeline", "/spec/parallelism/sizes/data", "/spec/parallelism/microBatches"}) {
    hashes.insert(inputs_hash(parse_spec(model), parse_owner(model), ""));
    const std::string pointer = path;
    const size_t slash = pointer.rfind('/');
    model.at(Json::json_pointer(pointer.substr(0, slash))).erase(pointer.substr(slash + 1));
  }
  EXPECT_EQ(hashes.size(), 7u);
  EXPECT_EQ(inputs_hash(parse_spec(model), parse_owner(model), ""), before);
  model["spec"]["parallelism"]["strategy"] = "ZeRO-2";
  EXPECT_THROW((void)parse_spec(model), std::invalid_argument);
}

TEST(Spec, AValueOutOfBoundsIsNamed) {
  Json model = model_named("m");
  model["spec"]["replicas"] = 1000;
  try {
    (void)parse_spec(model);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("spec.replicas must be an integer from 0 to 64"));
  }
}

class HardwareOf : public testing::Test {
 protected:
  HardwareOf() {
    snapshot.nodes.emplace();
    add("big", {{"nvidia.com/gpu.memory", "81920"}, {"pool", "x"}}, {{"nvidia.com/gpu", "8"}, {"memory", "512Gi"}});
    add("small", {{"nvidia.com/gpu.memory", "24576"}}, {{"nvidia.com/gpu", "4"}, {"memory", "64Gi"}});
    add("plain", {}, {{"memory", "1024Gi"}});
  }
  void add(const std::string& name, const Json& labels, const Json& allocatable) {
    snapshot.nodes->push_back(std::make_shared<const Json>(
        Json{{"metadata", {{"name", name}, {"labels", labels}}}, {"status", {{"allocatable", allocatable}}}}));
  }
  std::variant<Hardware, Refusal> of(const Json& devices, const Json& extra = Json::object()) {
    Json model = model_named("m");
    model["spec"]["devices"] = devices;
    model["spec"].erase("resources");
    model["spec"].update(extra);
    return hardware_of(parse_spec(model), snapshot);
  }
  Snapshot snapshot;
};

TEST_F(HardwareOf, TheSpecWins) {
  const auto hardware = std::get<Hardware>(of({{"count", 2}, {"memory", "40Gi"}}));
  EXPECT_EQ(hardware.device_memory, int64_t{40} << 30);
  EXPECT_EQ(hardware.memory_source, "spec");
}

TEST_F(HardwareOf, ThePlannerIsReportedHowManyDevicesANodeHas) {
  EXPECT_EQ(std::get<Hardware>(of({{"count", 4}, {"perNode", 2}, {"memory", "40Gi"}})).devices_per_node, 2);
}

TEST(LayoutOf, RanksAreDealtAsEquallyAsWholeRanksAllow) {
  const auto ranks_per_pod = [](int ranks, int per_node) {
    Spec spec;
    spec.devices.per_node = per_node;
    Plan plan;
    plan.data = ranks;
    return make_pod_layout(spec, plan).ranks;
  };
  EXPECT_EQ(ranks_per_pod(4, 4), (std::vector<int>{4}));
  EXPECT_EQ(ranks_per_pod(3, 2), (std::vector<int>{2, 1}));
  EXPECT_EQ(ranks_per_pod(5, 4), (std::vector<int>{3, 2}));
  EXPECT_EQ(ranks_per_pod(10, 8), (std::vector<int>{5, 5}));
  EXPECT_EQ(ranks_per_pod(9, 4), (std::vector<int>{3, 3, 3}));
}

TEST_F(HardwareOf, AGpuIsAsBigAsTheSmallestThatThePodMayGet) {
  EXPECT_EQ(std::get<Hardware>(of({{"count", 2}})).device_memory, int64_t{24} << 30);
  EXPECT_EQ(std::get<Hardware>(of({{"count", 2}}, {{"scheduling", {{"nodeSelector", {{"pool", "x"}}}}}})).device_memory,
            int64_t{80} << 30);
  EXPECT_THAT(std::get<Refusal>(of({{"count", 2}, {"resource", "amd.com/gpu"}})).message,
              HasSubstr("set spec.devices.memory"));
}

TEST_F(HardwareOf, ACpuDeviceIsAShareOfThePodOrOfHalfANode) {
  EXPECT_EQ(std::get<Hardware>(of({{"count", 4}, {"type", "CPU"}}, {{"resources", {{"memory", "8Gi"}}}})).device_memory,
            int64_t{2} << 30);
  EXPECT_EQ(std::get<Hardware>(of({{"count", 4}, {"type", "CPU"}})).device_memory, int64_t{128} << 30);
  snapshot.nodes.reset();
  EXPECT_EQ(std::get<Refusal>(of({{"count", 4}, {"type", "CPU"}})).reason, Reason::DeviceMemoryUnknown);
}

TEST_F(HardwareOf, FiguresAreThoseOfTheSlowestNodeThatTellsAndTheProductOnlyWhereAllAgree) {
  add("fast",
      {{"nvidia.com/gpu.memory", "81920"},
       {"nvidia.com/gpu.product", "NVIDIA-L4"},
       {"pool", "y"},
       {"parallelmodel.dev/link-gigabytes-per-second", "450"},
       {"parallelmodel.dev/link-microseconds", "7.5"}},
      {{"nvidia.com/gpu", "8"}});
  add("slow",
      {{"nvidia.com/gpu.memory", "81920"},
       {"nvidia.com/gpu.product", "NVIDIA-L4"},
       {"pool", "y"},
       {"parallelmodel.dev/link-gigabytes-per-second", "12"},
       {"parallelmodel.dev/link-microseconds", "30"}},
      {{"nvidia.com/gpu", "8"}});
  const Hardware two = std::get<Hardware>(of({{"count", 2}}, {{"scheduling", {{"nodeSelector", {{"pool", "y"}}}}}}));
  EXPECT_EQ(two.link_bandwidth, (HardwareValue{12e9, "node label"}));
  EXPECT_EQ(two.link_latency, (HardwareValue{30 * 1e-6, "node label"}));
  EXPECT_EQ(two.memory_bandwidth, HardwareValue{});
  EXPECT_EQ(two.product, "NVIDIA-L4");
  EXPECT_EQ(std::get<Hardware>(of({{"count", 2}})).product, "") << "the others tell none";
}

TEST_F(HardwareOf, AProductOfTheTableNeedsNoLabelOfItsMemory) {
  snapshot.nodes->clear();
  add("a", {{"nvidia.com/gpu.product", "Tesla-T4"}}, {{"nvidia.com/gpu", "4"}});
  const Hardware hardware = std::get<Hardware>(of({{"count", 2}}));
  EXPECT_EQ(hardware.product, "Tesla-T4");
  EXPECT_EQ(hardware.device_memory, 0) << "the planner fills it in";
  snapshot.nodes->clear();
  add("a", {{"nvidia.com/gpu.product", "Unheard-Of"}}, {{"nvidia.com/gpu", "4"}});
  EXPECT_EQ(std::get<Refusal>(of({{"count", 2}})).reason, Reason::DeviceMemoryUnknown);
}

TEST_F(HardwareOf, ADeviceThatPodsShareCountsWithItsShare) {
  snapshot.nodes->clear();
  const Json sharing{{"nvidia.com/gpu.replicas", "4"}, {"nvidia.com/gpu.product", "Tesla-T4-SHARED"}};
  add("a", sharing, {{"nvidia.com/gpu", "4"}});
  const Hardware known = std::get<Hardware>(of({{"count", 1}}));
  EXPECT_EQ(known.memory_source, "product table, shared by 4 pods");
  EXPECT_EQ(known.product, "Tesla-T4");
  Json labelled = sharing;
  labelled["nvidia.com/gpu.memory"] = "16384";
  snapshot.nodes->clear();
  add("a", labelled, {{"nvidia.com/gpu", "4"}});
  const Hardware hardware = std::get<Hardware>(of({{"count", 1}}));
  EXPECT_EQ(hardware.device_memory, int64_t{4} << 30);
  EXPECT_EQ(hardware.memory_source, "node label, shared by 4 pods");
  EXPECT_EQ(std::get<Refusal>(of({{"count", 2}})).reason, Reason::DoesNotFit) << "both ranks may get one device";
}

TEST_F(HardwareOf, WhatOthersHoldOfASharedDeviceIsCounted) {
  snapshot.nodes->clear();
  add("a", {{"nvidia.com/gpu.replicas", "4"}, {"nvidia.com/gpu.memory", "16384"}}, {{"nvidia.com/gpu", "4"}});
  EXPECT_TRUE(std::holds_alternative<Hardware>(of({{"count", 1}, {"memory", "16Gi"}})));
  snapshot.memory_held["a"]["nvidia.com/gpu"] = {int64_t{10} << 30, 0};  // the second one has a share of 4Gi
  EXPECT_TRUE(std::holds_alternative<Hardware>(of({{"count", 1}, {"memory", "2Gi"}})));
  const auto refusal = std::get<Refusal>(of({{"count", 1}, {"memory", "3Gi"}}));
  EXPECT_EQ(refusal.reason, Reason::DoesNotFit);
  EXPECT_THAT(refusal.message, HasSubstr("leave 2.0 GiB of 16.0 GiB of a shared device on a"));
  EXPECT_TRUE(std::holds_alternative<Refusal>(of({{"count", 1}, {"memory", "2Gi"}}, {{"replicas", 2}})))
      << "the second replica gets the same device";
}

TEST_F(HardwareOf, LabelsThatAreNoNumbersAreNotRead) {
  for (const char* text : {"", "fast", "-3", "1e9", "1.", ".5", "1.2.3", "0", "nan", "99999999999999999999"}) {
    snapshot.nodes->clear();
    add("a", {{"parallelmodel.dev/teraflops", text}}, {{"memory", "64Gi"}});
    EXPECT_EQ(std::get<Hardware>(of({{"count", 2}, {"type", "CPU"}})).flops, HardwareValue{}) << text;
  }
}

TEST_F(HardwareOf, FreeDevicesAreWhatPodsLeave) {
  snapshot.devices_used["big"]["nvidia.com/gpu"] = 7;
  Json model = model_named("m");
  EXPECT_EQ(free_devices(parse_spec(model), snapshot), "free 4 of 4 on small");
}

TEST(Progress, HostileAnswersGiveNothingOrBoundedNumbers) {
  for (const char* text : {"null", "[]", "{}", R"({"replicaGeneration":2})", R"({"replicaGeneration":"1"})",
                           R"({"replicaGeneration":1,"ranks":7})"}) {
    EXPECT_FALSE(progress_of(Json::parse(text), 1, 2)) << text;
  }
  const auto progress = progress_of(
      Json::parse(
          R"({"replicaGeneration":1,"state":"Lo ading","ranks":[{"rank":0,"loadBytes":-5,"loadTotal":18446744073709551615,
    "loadSeconds":1e308},{"rank":1,"loadTotal":9223372036854775807,"measured":[]},{"rank":2},{"rank":"x"},7]})"),
      1, 2);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->state, "Starting");
  EXPECT_EQ(progress->ranks.size(), 2u);
  EXPECT_EQ(progress->loaded().done, 0);
  EXPECT_LE(progress->loaded().total, int64_t{1} << 51);
  EXPECT_LE(*progress->load_seconds, 1e6);
}

TEST(Events, OneTellsOfAllReplicasToWhichTheSameHappened) {
  const auto status = [](const std::vector<int>& serving, int all) {
    Json out{{"replicaStatuses", Json::array()}};
    for (int i = 0; i < all; ++i) {
      const bool serves = std::find(serving.begin(), serving.end(), i) != serving.end();
      out["replicaStatuses"].push_back({{"index", i},
                                        {"replicaGeneration", i == 7 ? 2 : 1},
                                        {"created", true},
                                        {"ready", serves},
                                        {"podHash", "a"}});
    }
    return out;
  };
  const auto texts = [](const Json& before, const Json& after) {
    std::vector<std::string> out;
    for (const Event& event : status_events(before, after)) out.push_back(event.reason + ": " + event.note);
    return out;
  };
  EXPECT_THAT(texts(Json(), status({}, 1)),
              testing::ElementsAre("ReplicaStarted: all pods of replica 0, generation 1, are made"));
  EXPECT_THAT(texts(Json(), status({}, 8)),
              testing::ElementsAre("ReplicaStarted: all pods of replicas 0 to 6, generation 1, are made",
                                   "ReplicaStarted: all pods of replica 7, generation 2, are made"));
  EXPECT_THAT(texts(status({}, 8), status({3}, 8)), testing::ElementsAre("ReplicaReady: replica 3 serves"));
  EXPECT_THAT(texts(status({3}, 8), status({0, 2, 3, 4, 6, 7}, 8)),
              testing::ElementsAre("ReplicaReady: replicas 0, 2, 4, 6, 7 serve"));
  EXPECT_THAT(texts(status({}, 8), status({0, 2, 3, 4, 6, 7}, 8)),
              testing::ElementsAre("ReplicaReady: replicas 0, 2 to 4, 6, 7 serve"));
  EXPECT_THAT(texts(status({3}, 8), status({3}, 8)), testing::IsEmpty());
}

}  // namespace
}  // namespace pm::op::test
