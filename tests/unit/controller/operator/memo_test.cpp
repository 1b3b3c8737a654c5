// What is remembered between passes never outlives a change of anything that it was made from.
#include "controller/operator/memo.h"

#include <gtest/gtest.h>

#include "fake_cluster.h"
#include "planner/plan.h"

namespace pm::op::test {
namespace {

struct MemoTest : testing::Test {
  Json model = [] {
    Json made = model_named("m");
    made["metadata"]["uid"] = "u";
    return made;
  }();
  Settings settings = test::settings();
  k8s::ObjectPtr map = plan_map(4);
  Memo memo;

  k8s::ObjectPtr plan_map(int64_t concurrency) const {
    const Spec spec = spec_of(model);
    const Facts facts = facts_from_json(small_facts());
    return std::make_shared<const Json>(plan_config_map(owner_of(model), spec, facts, *decide(facts, {.devices = 2, .device_memory = int64_t{2} << 30}, {.max_concurrency = concurrency}).plan, "w", std::nullopt));
  }
  /// What the memo says now, checked against what is worked out anew.
  std::pair<std::string, std::string> now() {
    const Owner owner = owner_of(model);
    const auto spec = memo.spec(std::make_shared<const Json>(model));
    const auto plan = memo.plan(map);
    const auto pods = memo.pods(spec, owner, plan, settings);
    const auto hashes = memo.hashes(spec, owner, "");
    const Spec fresh = spec_of(model);
    const StoredPlan stored = stored_plan(*map);
    const Layout layout = layout_of(fresh, stored.plan);
    EXPECT_EQ(pods->hash, pod_hash_of({owner, fresh, stored, layout, settings}));
    EXPECT_EQ(hashes->inputs, inputs_hash(fresh, owner, ""));
    EXPECT_EQ(hashes->source, source_hash(fresh, owner, ""));
    EXPECT_EQ(memo.hashes(spec, owner, "copy")->inputs, inputs_hash(fresh, owner, "copy"));
    const Policy policy{"copy", "p.yaml"};
    EXPECT_EQ(*memo.children(spec, owner, 2), (std::vector<Json>{http_service(owner, fresh), ranks_service(owner), disruption_budget(owner, fresh, 2).value()}));
    EXPECT_NE(memo.children(spec, owner, 3)->back(), memo.children(spec, owner, 2)->back());
    EXPECT_EQ(memo.children(spec, owner, 1)->front(), http_service(owner, fresh));
    EXPECT_EQ(*memo.inspect_pod(spec, owner, settings, std::nullopt), inspect_pod(owner, fresh, settings, std::nullopt));
    EXPECT_EQ(*memo.inspect_pod(spec, owner, settings, policy), inspect_pod(owner, fresh, settings, policy));
    return {pods->hash, hashes->inputs};
  }
};

TEST_F(MemoTest, RemembersWhatHasNotChangedAlsoInANewObject) {
  const auto spec = memo.spec(std::make_shared<const Json>(model));
  const auto plan = memo.plan(map);
  model["metadata"]["resourceVersion"] = "2";
  model["status"]["readyReplicas"] = 1;
  EXPECT_EQ(memo.spec(std::make_shared<const Json>(model)), spec);
  EXPECT_EQ(memo.plan(std::make_shared<const Json>(*map)), plan);
  EXPECT_EQ(memo.pods(spec, owner_of(model), plan, settings), memo.pods(spec, owner_of(model), plan, settings));
}

TEST_F(MemoTest, ForgetsWhatAPassHadNoUseForAndHoldsNoObject) {
  const auto object = std::make_shared<const Json>(model);
  const auto spec = memo.spec(object);
  const auto plan = memo.plan(map);
  const std::weak_ptr<const Json> pod = memo.inspect_pod(spec, owner_of(model), settings, std::nullopt);
  EXPECT_EQ(object.use_count(), 1);
  EXPECT_EQ(map.use_count(), 1);
  memo.forget_unused();
  EXPECT_FALSE(pod.expired()) << "it was asked for in this pass";
  EXPECT_EQ(memo.spec(object), spec);
  memo.forget_unused();
  EXPECT_TRUE(pod.expired());
  EXPECT_EQ(memo.spec(object), spec);
  EXPECT_NE(memo.plan(map), plan);
}

TEST_F(MemoTest, AnImmutableMapIsKnownByItsUidAndAnyOtherByWhatItHolds) {
  const auto with_uid = [&](const char* uid, bool immutable, const char* image) {
    Json out = *map;
    out["metadata"]["uid"] = uid, out["immutable"] = immutable, out["data"]["image"] = image;
    return memo.plan(std::make_shared<const Json>(std::move(out)))->image;
  };
  EXPECT_EQ(with_uid("1", true, "a"), "a");
  EXPECT_EQ(with_uid("2", true, "b"), "b");
  EXPECT_EQ(with_uid("1", true, "a"), "a");
  EXPECT_EQ(with_uid("3", false, "a"), "a");
  EXPECT_EQ(with_uid("3", false, "c"), "c");
}

TEST_F(MemoTest, EveryInputThatChangesIsSeen) {
  const std::vector<std::function<void(MemoTest&)>> changes{
      [](MemoTest& t) { t.model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); },
      [](MemoTest& t) { t.model["metadata"]["annotations"]["parallelmodel.dev/restarted-at"] = "now"; },
      [](MemoTest& t) { t.model["metadata"]["name"] = "other"; },
      [](MemoTest& t) { t.model["spec"]["service"]["port"] = 81, t.model["spec"]["resources"]["memory"] = "6Gi"; },
      [](MemoTest& t) { t.map = t.plan_map(8); },
      [](MemoTest& t) {
        Json other = *t.map;   // the same name and another image
        other["data"]["image"] = "x";
        t.map = std::make_shared<const Json>(std::move(other));
      },
      [](MemoTest& t) { t.settings.read_only_root = !t.settings.read_only_root; },
      [](MemoTest& t) { t.model["spec"]["resources"]["memory"] = "5Gi"; },
  };
  const auto begin = now();
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const Json model_before = model;
    const auto map_before = map;
    const Settings settings_before = settings;
    changes[i](*this);
    EXPECT_NE(now(), begin);
    model = model_before, map = map_before, settings = settings_before;
    EXPECT_EQ(now(), begin);
  }
}

TEST_F(MemoTest, ManyDifferentSpecsAreAllReadRight) {
  for (int round = 0; round < 2; ++round) {
    for (int replicas = 1; replicas <= 12; ++replicas) {
      model["spec"]["replicas"] = replicas;
      EXPECT_EQ(memo.spec(std::make_shared<const Json>(model))->replicas, replicas);
      now();
    }
  }
}

TEST_F(MemoTest, WhatCannotBeReadIsRefusedEachTime) {
  model["spec"]["devices"]["count"] = 0;
  for (int i = 0; i < 2; ++i) EXPECT_THROW((void)memo.spec(std::make_shared<const Json>(model)), std::invalid_argument);
}

}  // namespace
}  // namespace pm::op::test
