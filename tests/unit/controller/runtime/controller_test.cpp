// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/controller.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <thread>

#include "controller/core/status_error.h"
#include "fake_cluster.h"

using namespace pm::k8s;
using namespace pm::k8s::test;
using namespace std::chrono_literals;

namespace {

const Resource models_resource{"example.com", "v1", "models", "Model"};

/// A controller that wants one pod "<name>-pod" per Model, on a cluster in memory.
struct ControllerTest : testing::Test {
  FakeCluster cluster;
  RealClock clock;
  prometheus::Registry registry;
  Controller controller{"model", {.resource = models_resource}, {cluster, cluster, clock, registry}};
  Store models = controller.primary();
  Store pods = controller.owns({.resource = pods_resource, .label_selector = "app"});
  std::atomic<int> runs{0};
  std::stop_source stop;
  std::jthread thread;

  ~ControllerTest() override { stop.request_stop(); }

  Result make_pod(const Key& key) {
    ++runs;
    const ObjectPtr model = models.get(key);
    if (!model || pods.get({key.ns, key.name + "-pod"})) return {};
    Json pod = {{"metadata",
                 {{"name", key.name + "-pod"},
                  {"labels", {{"app", "x"}}},
                  {"ownerReferences", {owner_reference(models_resource, *model)}}}}};
    const Response response = controller.api().send({Verb::Create, pods_resource, key.ns, key.name + "-pod", "", pod});
    if (failed(response)) return {.error = to_string(error_of(response))};
    return {};
  }
  void start(Reconcile reconcile, int workers = 2) {
    thread = std::jthread([this, reconcile, workers] { controller.run(reconcile, stop.get_token(), workers); });
  }
  void start() {
    start([this](const Key& key) { return make_pod(key); });
  }
  void model(const std::string& name, int spec = 0) {
    cluster.put(models_resource, {{"metadata", {{"namespace", "n"}, {"name", name}}}, {"spec", spec}});
  }
  template <class Condition>
  void until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(1ms);
  }
  std::string scrape() { return prometheus::TextSerializer().Serialize(registry.Collect()); }
};

}  // namespace

TEST_F(ControllerTest, MakesWhatIsMissingAndMakesItAgain) {
  model("a");
  start();
  until([&] { return pods.size() == 1; });
  model("b");
  until([&] { return pods.size() == 2; });
  cluster.remove(pods_resource, {"n", "a-pod"});
  until([&] { return cluster.count(Verb::Create, pods_resource) == 3; });
  EXPECT_TRUE(controller.ready());
  EXPECT_TRUE(controller.healthy());
}

TEST_F(ControllerTest, NothingIsReconciledBeforeEveryStoreIsSynced) {
  model("a");
  std::atomic<bool> blocked{true};
  std::atomic<int> refused{0};
  cluster.fault = [&](const Request& request) -> std::optional<ApiError> {
    if (blocked && request.resource == pods_resource && request.verb == Verb::List) {
      ++refused;
      return no_answer("blocked");
    }
    return {};
  };
  start();
  until([&] { return models.synced() && refused >= 1; });
  EXPECT_FALSE(controller.ready());
  EXPECT_EQ(runs, 0);
  blocked = false;
  until([&] { return pods.size() == 1; });
  EXPECT_EQ(cluster.count(Verb::Create, pods_resource), 1u);
}

TEST_F(ControllerTest, ASlowWatchNeverMakesAReconcileBlindForItsOwnWrites) {
  start();
  until([&] { return controller.ready() && cluster.watches_started() == 2; });
  model("a");
  until([&] { return cluster.count(Verb::Create, pods_resource) == 1; });
  cluster.freeze_watches(true);
  model("b");
  cluster.freeze_watches(false);
  until([&] { return pods.size() == 2; });
  cluster.freeze_watches(true);
  const int before = runs;
  controller.enqueue({"n", "a"});
  until([&] { return runs > before; });
  cluster.freeze_watches(false);
  EXPECT_EQ(cluster.count(Verb::Create, pods_resource), 2u);
}

TEST_F(ControllerTest, AKeyWithUnseenWritesWaitsForThem) {
  std::atomic<int> creations{0};
  model("a");
  start([&](const Key& key) {
    ++runs;
    if (creations++ == 0) {
      cluster.freeze_watches(true);
      const Json pod = {{"metadata",
                         {{"name", "p"},
                          {"labels", {{"app", "x"}}},
                          {"ownerReferences", {owner_reference(models_resource, *models.get(key))}}}}};
      EXPECT_FALSE(failed(controller.api().send({Verb::Create, pods_resource, "n", "p", "", pod})));
      return Result{.requeue_after = 1ms};
    }
    EXPECT_TRUE(pods.get({"n", "p"})) << "reconciled before its own write was visible";
    return Result{};
  });
  until([&] { return creations == 1; });
  std::this_thread::sleep_for(50ms);  // the requeue is due, and must not run
  EXPECT_EQ(runs, 1);
  cluster.freeze_watches(false);
  until([&] { return runs >= 2; });
}

TEST_F(ControllerTest, ErrorsAreRetriedTerminalOnesAreNot) {
  model("flaky");
  model("hopeless");
  std::atomic<int> flaky{0}, hopeless{0};
  start([&](const Key& key) -> Result {
    if (key.name == "hopeless") {
      ++hopeless;
      return {.error = "bad spec", .terminal = true};
    }
    if (++flaky < 4) return {.error = "not yet"};
    return {};
  });
  until([&] { return flaky == 4; });
  EXPECT_EQ(hopeless, 1);
  model("hopeless", 1);
  until([&] { return hopeless == 2; });
  const std::string text = scrape();
  EXPECT_NE(text.find("controller_runtime_reconcile_errors_total{controller=\"model\"} 5"), std::string::npos) << text;
  EXPECT_NE(text.find("controller_runtime_terminal_reconcile_errors_total{controller=\"model\"} 2"), std::string::npos)
      << text;
  EXPECT_NE(text.find("workqueue_retries_total{controller=\"model\",name=\"model\"} 3"), std::string::npos) << text;
}

TEST_F(ControllerTest, AnExceptionIsContainedAndCounted) {
  model("bad");
  model("good");
  std::atomic<int> bad{0}, good{0};
  start([&](const Key& key) -> Result {
    if (key.name == "good") {
      ++good;
    } else if (++bad < 3) {
      throw std::runtime_error("boom");
    }
    return {};
  });
  until([&] { return bad == 3 && good == 1; });
  EXPECT_NE(scrape().find("controller_runtime_reconcile_panics_total{controller=\"model\"} 2"), std::string::npos);
}

TEST_F(ControllerTest, ARequeueLooksAgainWithoutAChange) {
  model("a");
  start([&](const Key&) { return ++runs < 3 ? Result{.requeue_after = 1ms} : Result{}; });
  until([&] { return runs == 3; });
}

TEST_F(ControllerTest, AConvergedClusterIsLeftAlone) {
  for (int i = 0; i < 20; ++i) model(std::to_string(i));
  start();
  until([&] { return pods.size() == 20; });
  std::this_thread::sleep_for(100ms);
  const int settled = runs;
  const size_t requests = cluster.sent().size();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(runs, settled);
  EXPECT_EQ(cluster.sent().size(), requests);
}

TEST_F(ControllerTest, AChangeOfNothingThatIsKeptQueuesNothing) {
  std::atomic<int> passes_of_a{0}, passes_of_b{0};
  const auto put_a = [&](int managed, int spec) {
    cluster.put(models_resource,
                {{"metadata", {{"namespace", "n"}, {"name", "a"}, {"managedFields", {managed}}}}, {"spec", spec}});
  };
  put_a(1, 1);
  start([&](const Key& key) { return ++(key.name == "a" ? passes_of_a : passes_of_b), Result{}; }, 1);
  until([&] { return passes_of_a == 1; });
  const Json version = models.get({"n", "a"})->at("metadata").at("resourceVersion");
  put_a(2, 1);
  model("b");
  until([&] { return passes_of_b == 1; });  // one worker, first come, first served
  EXPECT_EQ(passes_of_a, 1);
  EXPECT_NE(models.get({"n", "a"})->at("metadata").at("resourceVersion"), version) << "the store follows all the same";
  put_a(2, 2);
  until([&] { return passes_of_a == 2; });
}

TEST_F(ControllerTest, AStopFinishesWhatRunsAndDropsTheRest) {
  std::atomic<bool> inside{false}, release{false}, finished{false};
  model("a");
  start(
      [&](const Key&) {
        inside = true;
        until([&] { return release.load(); });
        finished = true;
        return Result{};
      },
      1);
  until([&] { return inside.load(); });
  stop.request_stop();
  release = true;
  thread.join();
  EXPECT_TRUE(finished);
}

TEST_F(ControllerTest, AnyCollectionMayNameTheKeysThatItConcerns) {
  std::atomic<bool> told{false};
  const Store nodes = controller.watches(
      {.resource = nodes_resource}, [](const Json& node) { return std::vector<Key>{{"n", label_of(node, "model")}}; });
  start([&](const Key& key) {
    if (key == Key{"n", "a"} && nodes.get({"", "node"})) told = true;
    return Result{};
  });
  until([&] { return controller.ready(); });
  cluster.put(nodes_resource, {{"metadata", {{"name", "node"}, {"labels", {{"model", "a"}}}}}});
  until([&] { return told.load(); });
}
