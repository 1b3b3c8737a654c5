// SPDX-License-Identifier: Apache-2.0
// Tests that no cached value outlives a change of its inputs.
#include "controller/operator/children/model_cache.h"

#include <gtest/gtest.h>

#include "planner/plan.h"
#include "tests/unit/controller/operator/simulator/fake_cluster.h"

namespace pm::op::test {
namespace {

struct ModelCacheTest : testing::Test {
  Json model = [] {
    Json made = model_named("m");
    made["metadata"]["uid"] = "u";
    return made;
  }();
  Settings settings = test::settings();
  k8s::ObjectPtr map = plan_map(4);
  ModelCache cache;

  k8s::ObjectPtr plan_map(int64_t concurrency) const {
    const Spec spec = parse_spec(model);
    const ModelMetadata metadata = metadata_from_json(small_metadata());
    return std::make_shared<const Json>(plan_config_map(
        parse_owner(model), spec, metadata,
        *decide(metadata, {.devices = 2, .device_memory = int64_t{2} << 30}, {.max_concurrency = concurrency}).plan,
        "w", std::nullopt));
  }
  /// Returns what the cache has, compared with a new computation.
  std::pair<std::string, std::string> now() {
    const Owner owner = parse_owner(model);
    const auto spec = cache.spec(std::make_shared<const Json>(model));
    const auto plan = cache.plan(map);
    const auto pods = cache.pods(spec, owner, plan, settings);
    const auto hashes = cache.hashes(spec, owner, "");
    const Spec fresh = parse_spec(model);
    const StoredPlan stored = stored_plan(*map);
    const PodLayout layout = make_pod_layout(fresh, stored.plan);
    EXPECT_EQ(pods->hash, pod_hash_of({owner, fresh, stored, layout, settings}));
    EXPECT_EQ(hashes->inputs, inputs_hash(fresh, owner, ""));
    EXPECT_EQ(hashes->source, source_hash(fresh, owner, ""));
    EXPECT_EQ(cache.hashes(spec, owner, "copy")->inputs, inputs_hash(fresh, owner, "copy"));
    const Policy policy{"copy", "p.yaml"};
    EXPECT_EQ(*cache.children(spec, owner, 2, true),
              (std::vector<Json>{http_service(owner, fresh), ranks_service(owner),
                                 disruption_budget(owner, fresh, 2, true).value()}));
    EXPECT_NE(cache.children(spec, owner, 3, true)->back(), cache.children(spec, owner, 2, true)->back());
    EXPECT_NE(cache.children(spec, owner, 2, true)->back(), cache.children(spec, owner, 2, false)->back());
    EXPECT_EQ(cache.children(spec, owner, 1, false)->front(), http_service(owner, fresh));
    EXPECT_EQ(*cache.inspect_pod(spec, owner, settings, std::nullopt),
              inspect_pod(owner, fresh, settings, std::nullopt));
    EXPECT_EQ(*cache.inspect_pod(spec, owner, settings, policy), inspect_pod(owner, fresh, settings, policy));
    return {pods->hash, hashes->inputs};
  }
};

TEST_F(ModelCacheTest, RemembersWhatHasNotChangedAlsoInANewObject) {
  const auto spec = cache.spec(std::make_shared<const Json>(model));
  const auto plan = cache.plan(map);
  model["metadata"]["resourceVersion"] = "2";
  model["status"]["readyReplicas"] = 1;
  EXPECT_EQ(cache.spec(std::make_shared<const Json>(model)), spec);
  EXPECT_EQ(cache.plan(std::make_shared<const Json>(*map)), plan);
  EXPECT_EQ(cache.pods(spec, parse_owner(model), plan, settings), cache.pods(spec, parse_owner(model), plan, settings));
}

TEST_F(ModelCacheTest, ForgetsWhatAReconcileHadNoUseForAndHoldsNoObject) {
  const auto object = std::make_shared<const Json>(model);
  const auto spec = cache.spec(object);
  const auto plan = cache.plan(map);
  const std::weak_ptr<const Json> pod = cache.inspect_pod(spec, parse_owner(model), settings, std::nullopt);
  EXPECT_EQ(object.use_count(), 1);
  EXPECT_EQ(map.use_count(), 1);
  cache.forget_unused();
  EXPECT_FALSE(pod.expired()) << "it was asked for in this reconcile";
  EXPECT_EQ(cache.spec(object), spec);
  cache.forget_unused();
  EXPECT_TRUE(pod.expired());
  EXPECT_EQ(cache.spec(object), spec);
  EXPECT_NE(cache.plan(map), plan);
}

TEST_F(ModelCacheTest, AnImmutableMapIsKnownByItsUidAndAnyOtherByWhatItHolds) {
  const auto with_uid = [&](const char* uid, bool immutable, const char* image) {
    Json out = *map;
    out["metadata"]["uid"] = uid, out["immutable"] = immutable, out["data"]["image"] = image;
    return cache.plan(std::make_shared<const Json>(std::move(out)))->image;
  };
  EXPECT_EQ(with_uid("1", true, "a"), "a");
  EXPECT_EQ(with_uid("2", true, "b"), "b");
  EXPECT_EQ(with_uid("1", true, "a"), "a");
  EXPECT_EQ(with_uid("3", false, "a"), "a");
  EXPECT_EQ(with_uid("3", false, "c"), "c");
}

TEST_F(ModelCacheTest, EveryInputThatChangesIsSeen) {
  const std::vector<std::function<void(ModelCacheTest&)>> changes{
      [](ModelCacheTest& t) { t.model["spec"]["worker"]["env"] = Json::array({{{"name", "A"}, {"value", "1"}}}); },
      [](ModelCacheTest& t) { t.model["metadata"]["annotations"]["parallelmodel.dev/restarted-at"] = "now"; },
      [](ModelCacheTest& t) { t.model["metadata"]["name"] = "other"; },
      [](ModelCacheTest& t) {
        t.model["spec"]["service"]["port"] = 81, t.model["spec"]["resources"]["memory"] = "6Gi";
      },
      [](ModelCacheTest& t) { t.map = t.plan_map(8); },
      [](ModelCacheTest& t) {
        Json other = *t.map;  // the same name and another image
        other["data"]["image"] = "x";
        t.map = std::make_shared<const Json>(std::move(other));
      },
      [](ModelCacheTest& t) { t.settings.read_only_root = !t.settings.read_only_root; },
      [](ModelCacheTest& t) { t.model["spec"]["resources"]["memory"] = "5Gi"; },
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

TEST_F(ModelCacheTest, ManyDifferentSpecsAreAllReadRight) {
  for (int round = 0; round < 2; ++round) {
    for (int replicas = 1; replicas <= 12; ++replicas) {
      model["spec"]["replicas"] = replicas;
      EXPECT_EQ(cache.spec(std::make_shared<const Json>(model))->replicas, replicas);
      now();
    }
  }
}

TEST_F(ModelCacheTest, WhatCannotBeReadIsRefusedEachTime) {
  model["spec"]["devices"]["count"] = 0;
  for (int i = 0; i < 2; ++i)
    EXPECT_THROW((void)cache.spec(std::make_shared<const Json>(model)), std::invalid_argument);
}

}  // namespace
}  // namespace pm::op::test
