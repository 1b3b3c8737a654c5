// SPDX-License-Identifier: Apache-2.0
// Tests what drafts for a model: n-grams, a module of its checkpoint, or a draft model that pods mount. Plans keep
// memory for the last two, and what cannot draft is refused by name.
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

const std::string image = "registry.example.com/models@sha256:" + std::string(64, 'a');

Json with_draft(Json model, const std::string& source, const std::string& path = "") {
  model["spec"]["model"]["draft"]["source"] = source;
  if (!path.empty()) model["spec"]["model"]["draft"]["path"] = path;
  return model;
}

Json speculating(Json model, const char* kind) {
  model["spec"]["serving"]["speculation"] = kind;
  return model;
}

/// Returns the values of `--draft-model`, in order.
std::vector<std::string> drafts(const Json& pod) {
  std::vector<std::string> out;
  const Json& args = pod["spec"]["containers"][0]["args"];
  for (size_t i = 0; i + 1 < args.size(); ++i)
    if (args[i] == "--draft-model") out.push_back(args[i + 1]);
  return out;
}

std::vector<std::string> volume_names(const Json& pod) {
  std::vector<std::string> out;
  for (const Json& volume : pod["spec"]["volumes"]) out.push_back(volume["name"]);
  return out;
}

/// Returns the pods that read the draft model: those of both nodes of a replica, and the one that inspects.
std::vector<Json> readers(const Json& model) {
  const Made made(model, 2);
  return {made.pod(0, 0), made.pod(0, 1), inspect_pod(made.owner, made.spec, made.worker, {})};
}

TEST(Speculation, IsAnArgumentOfReplicasOnly) {
  const Json model = owned_model();
  EXPECT_THAT(Made(model).pod().dump(), Not(HasSubstr("--speculation")));
  const Made made(speculating(model, "NGram"));
  EXPECT_THAT(made.pod()["spec"]["containers"][0]["args"].dump(), HasSubstr(R"("--speculation","ngram")"));
  EXPECT_THAT(inspect_pod(made.owner, made.spec, made.worker, {}).dump(), Not(HasSubstr("--speculation")));
  EXPECT_EQ(inputs_hash(made.spec, made.owner, ""), inputs_hash(parse_spec(model), made.owner, ""));
}

TEST(Speculation, ByAModuleOfTheCheckpointIsInspectedAndPlannedToo) {
  const Json model = owned_model();
  const Made made(speculating(model, "MTP"));
  const std::string flag = R"("--speculation","mtp")";
  EXPECT_THAT(made.pod()["spec"]["containers"][0]["args"].dump(), HasSubstr(flag));
  EXPECT_THAT(inspect_pod(made.owner, made.spec, made.worker, {}).dump(), HasSubstr(flag));
  EXPECT_NE(source_hash(made.spec, made.owner, ""), source_hash(parse_spec(model), made.owner, ""));
  EXPECT_NE(inputs_hash(made.spec, made.owner, ""), inputs_hash(parse_spec(model), made.owner, ""));
}

TEST(DraftModel, OnThePvcOfTheModelIsAFolderOfItsMount) {
  for (const Json& pod : readers(with_draft(owned_model(4), "pvc://models/small/er/"))) {
    EXPECT_EQ(drafts(pod), std::vector<std::string>{"/model/small/er"});
    EXPECT_THAT(volume_names(pod), Not(Contains("draft")));
    EXPECT_THAT(pod.dump(), Not(HasSubstr("--speculation"))) << "the flag of the draft model says it";
  }
}

TEST(DraftModel, OnAnotherPvcOrInAnImageIsMountedReadOnlyByEveryNode) {
  const Json mount{{"name", "draft"}, {"mountPath", "/draft"}, {"readOnly", true}};
  for (const Json& pod : readers(with_draft(owned_model(4), "pvc://others/small"))) {
    EXPECT_EQ(drafts(pod), std::vector<std::string>{"/draft/small"});
    EXPECT_THAT(
        pod["spec"]["volumes"].get<std::vector<Json>>(),
        Contains(Json{{"name", "draft"}, {"persistentVolumeClaim", {{"claimName", "others"}, {"readOnly", true}}}}));
    EXPECT_THAT(pod["spec"]["containers"][0]["volumeMounts"].get<std::vector<Json>>(), Contains(mount));
  }
  for (const Json& pod : readers(with_draft(owned_model(4), "oci://" + image, "models/small"))) {
    EXPECT_EQ(drafts(pod), std::vector<std::string>{"/draft/models/small"});
    EXPECT_THAT(pod["spec"]["volumes"].get<std::vector<Json>>(),
                Contains(Json{{"name", "draft"}, {"image", {{"reference", image}, {"pullPolicy", "IfNotPresent"}}}}));
    EXPECT_THAT(pod["spec"]["containers"][0]["volumeMounts"].get<std::vector<Json>>(), Contains(mount));
  }
}

TEST(DraftModel, OnThePvcOfAnAdapterIsMountedOnce) {
  Json model = with_draft(owned_model(4), "pvc://others/small");
  model["spec"]["model"]["adapters"] = Json::array({{{"name", "sql"}, {"source", "pvc://others/sql"}}});
  for (const Json& pod : readers(model)) {
    EXPECT_EQ(drafts(pod), std::vector<std::string>{"/adapters/0/small"});
    EXPECT_THAT(volume_names(pod), Not(Contains("draft")));
  }
}

TEST(DraftModel, OfAModelOnTheHubIsMountedByItsInspectionAndNotByItsDownload) {
  Json model = with_draft(owned_model(), "pvc://models/small");
  model["spec"]["model"]["source"] = "hf://org/name";
  model["spec"]["model"]["cache"]["claimName"] = "models";
  const Spec spec = parse_spec(model);
  EXPECT_EQ(drafts(inspect_pod(parse_owner(model), spec, settings(), {})), std::vector<std::string>{"/draft/small"});
  const Json fetches = fetch_pod(parse_owner(model), spec, settings(), std::string(40, 'c'));
  EXPECT_TRUE(drafts(fetches).empty());
  EXPECT_THAT(volume_names(fetches), Not(Contains("draft")));
}

TEST(DraftModel, AnotherOneIsAnotherInputAndItsSwitchIsNone) {
  const Json model = owned_model();
  const Owner owner = parse_owner(model);
  const auto hashes = [&](const Json& changed) {
    const Spec spec = parse_spec(changed);
    return std::tuple(source_hash(spec, owner, ""), inputs_hash(spec, owner, ""));
  };
  const std::vector<Json> different{model,
                                    with_draft(model, "pvc://models/a"),
                                    with_draft(model, "pvc://models/b"),
                                    with_draft(model, "pvc://others/a"),
                                    with_draft(model, "oci://" + image),
                                    with_draft(model, "oci://" + image, "a")};
  for (size_t i = 0; i < different.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(std::get<0>(hashes(different[i])), std::get<0>(hashes(different[j]))) << i << " and " << j;
      EXPECT_NE(std::get<1>(hashes(different[i])), std::get<1>(hashes(different[j]))) << i << " and " << j;
    }
  }
  const Json switched = speculating(different[1], "DraftModel");
  EXPECT_EQ(hashes(switched), hashes(different[1]));
  EXPECT_EQ(Made(switched).pod(), Made(different[1]).pod());
  EXPECT_NE(pod_hash_of(Made(different[1]).inputs()), pod_hash_of(Made(different[2]).inputs()));
}

TEST(DraftModel, IsRefusedByName) {
  const auto refusal = [](const Json& model) {
    try {
      parse_spec(model);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Json model = owned_model(), drafted = with_draft(model, "pvc://models/small");
  EXPECT_EQ(refusal(drafted), "accepted") << "it needs no switch";
  EXPECT_EQ(refusal(speculating(drafted, "DraftModel")), "accepted");
  EXPECT_EQ(refusal(speculating(drafted, "NGram")),
            "spec.serving.speculation is NGram beside spec.model.draft, and one of them drafts: remove the other");
  EXPECT_EQ(refusal(speculating(drafted, "MTP")),
            "spec.serving.speculation is MTP beside spec.model.draft, and one of them drafts: remove the other");
  EXPECT_EQ(refusal(speculating(model, "DraftModel")),
            "spec.serving.speculation is DraftModel, which needs a draft model: set spec.model.draft.source");
  EXPECT_THAT(refusal(with_draft(model, "hf://org/small")),
              AllOf(StartsWith("spec.model.draft.source is 'hf://org/small', expected pvc://CLAIM/PATH or oci://"),
                    HasSubstr("download a draft model of the hub to a PVC")));
  EXPECT_THAT(refusal(with_draft(model, "pvc://models/../x")),
              HasSubstr("spec.model.draft.source must not contain .."));
  EXPECT_THAT(refusal(with_draft(model, "pvc:///x")), HasSubstr("names no PVC"));
  EXPECT_THAT(refusal(with_draft(model, "oci://registry/x:1")),
              HasSubstr("spec.model.draft.source must name an image"));
  EXPECT_THAT(refusal(with_draft(model, "oci://" + image, "../x")),
              HasSubstr("spec.model.draft.path must not contain"));
}

TEST(DraftModel, OnlyTheFirstPodHasItsMemory) {
  constexpr int64_t gibi = int64_t{1} << 30, mebi = int64_t{1} << 20;
  Json model = owned_model(4);
  model["spec"].erase("resources");
  model["spec"]["devices"]["perNode"] = 2;
  const Spec spec = parse_spec(model);
  const auto memory_with = [&](const std::optional<DraftNeeds>& draft) {
    ModelMetadata metadata = metadata_from_json(small_metadata());
    metadata.draft = draft;
    const Hardware hardware{.devices = 4, .device_memory = 2 * gibi};
    const Decision decision = decide(metadata, hardware, {.max_sequence_length = 256, .max_concurrency = 4});
    const PodLayout layout = make_pod_layout(spec, decision.plan.value());
    EXPECT_EQ(layout.nodes(), 2);
    return layout.memory;
  };
  const DraftNeeds needs{.weights = 64 * mebi, .activations = 8 * mebi, .kv_per_token = 1024};
  EXPECT_EQ(memory_with(needs) - memory_with(std::nullopt), 72 * mebi + int64_t{4} * 256 * 1024)
      << "once, with the keys and values of four sequences";
}

class DraftOfAModel : public testing::Test {
 protected:
  std::string planned() const { return k8s::string_at(*cluster.condition("Planned"), "/message"); }

  FakeCluster cluster;
  FakeOperator fake_operator{cluster};
  const Json drafted = with_draft(model_named("m"), "pvc://models/small");
};

TEST_F(DraftOfAModel, OneThatCannotDraftIsNamedBeforeAnyDeviceIsRequested) {
  const std::string vocabulary = "--draft-model /model/small has 100 tokens, expected the 1,184 of /model/gpt2";
  cluster.inspect_failure = Json{{"reason", "ModelUnreadable"}, {"message", vocabulary}};
  cluster.apply(drafted);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ModelUnreadable");
  EXPECT_EQ(planned(), "draft model of spec.model.draft: " + vocabulary);
  EXPECT_TRUE(cluster.with_role("pods", "worker").empty());
  cluster.inspect_failure.reset();
  cluster.apply(model_named("m"));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
}

TEST_F(DraftOfAModel, AModuleThatTheCheckpointLacksIsNamedBeforeAnyDeviceIsRequested) {
  const std::string lacking = "--speculation mtp: /model/gpt2 has no tensor model.layers.2.eh_proj.weight";
  cluster.inspect_failure = Json{{"reason", "ModelUnreadable"}, {"message", lacking}};
  cluster.apply(speculating(model_named("m"), "MTP"));
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_EQ(cluster.reason("Planned"), "ModelUnreadable");
  EXPECT_EQ(planned(), "drafts of spec.serving.speculation: " + lacking);
  EXPECT_TRUE(cluster.with_role("pods", "worker").empty());
}

TEST_F(DraftOfAModel, IsBlamedForMessagesThatBeginWithItsFlagOnly) {
  Json model = drafted;  // the folder of the adapter is also the beginning of the draft model's
  model["spec"]["model"]["adapters"] = Json::array({{{"name", "sql"}, {"source", "pvc://models/sm"}}});
  const auto planned_message = [&](const char* reason, const std::string& message) {
    cluster.inspect_failure = Json{{"reason", reason}, {"message", message}};
    cluster.apply(model);
    EXPECT_TRUE(fake_operator.settle());
    model["spec"]["serving"]["maxQueue"] = model["spec"]["serving"].value("maxQueue", 16) + 1;  // inspects again
    return planned();
  };
  EXPECT_EQ(planned_message("Usage", "--draft-model /model/small: no config.json"),
            "draft model of spec.model.draft: Usage: --draft-model /model/small: no config.json");
  EXPECT_EQ(planned_message("ModelUnreadable", "/model/sm: no adapter_config.json"),
            "adapter sql of spec.model.adapters: /model/sm: no adapter_config.json");
  EXPECT_EQ(planned_message("Usage", "unknown arguments: --draft-model /elsewhere"),
            "Usage: unknown arguments: --draft-model /elsewhere");
}

TEST_F(DraftOfAModel, ANewOneIsARollingUpdateWithMemoryForIt) {
  const auto pods = [&] { return cluster.with_role("pods", "worker"); };
  const auto plans = [&] { return cluster.with_role("configmaps", "plan"); };
  cluster.apply(model_named("m"));
  ASSERT_TRUE(fake_operator.settle());
  ASSERT_TRUE(cluster.is_true("Ready"));
  const std::string before = k8s::label_of(pods().at(0), label::pod_hash);
  cluster.metadata["draft"] = {{"weights", 1 << 20}, {"activations", 1 << 16}, {"kv", 1024}};  // what inspect adds
  cluster.apply(drafted);
  ASSERT_TRUE(fake_operator.settle());
  EXPECT_TRUE(cluster.is_true("Ready"));
  ASSERT_EQ(pods().size(), 1u);
  EXPECT_NE(k8s::label_of(pods()[0], label::pod_hash), before);
  EXPECT_EQ(drafts(pods()[0]), std::vector<std::string>{"/model/small"});
  ASSERT_EQ(plans().size(), 1u);
  EXPECT_TRUE(stored_plan(plans()[0]).plan.draft);
  EXPECT_TRUE(cluster.violations.empty());
}

}  // namespace
}  // namespace pm::op::test
