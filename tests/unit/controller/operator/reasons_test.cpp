// SPDX-License-Identifier: Apache-2.0
// Tests every reason of the condition table that a pod can cause, and that the message names what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "tests/unit/controller/operator/simulator/fake_operator.h"

namespace pm::op::test {
namespace {

using testing::HasSubstr;

struct Case {
  const char* reason;
  const char* message;                                             ///< is part of the condition's message
  std::function<void(FakeCluster&)> before = [](FakeCluster&) {};  ///< the model is applied
  std::function<void(FakeCluster&)> after = nullptr;               ///< it serves
  bool scheduled = true;                                           ///< Scheduled says it too
  int devices = 2;
};

void end_with(FakeCluster& cluster, const char* reason) {
  cluster.end_worker("m-0-0-1", 5, {{"rank", 1}, {"reason", reason}, {"exitCode", 5}, {"message", "rank 1 says why"}});
}

/// Ends a pod from outside its container.
void end_pod(FakeCluster& cluster, const char* reason, const char* message) {
  cluster.change_pod(
      "m-0-0-1", [&](Json& pod) { pod["status"] = {{"phase", "Failed"}, {"reason", reason}, {"message", message}}; });
}

void lose_node(FakeCluster& cluster) {
  cluster.set_node_ready("node-a", false);
  cluster.delete_pod("m-0-0-1");
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"InsufficientDevices", "needs 2 nvidia.com/gpu on one node, free 1 of ",
       [](FakeCluster& c) { c.devices = 1, c.show_devices(1); }},
      {"InsufficientDevices", "needs 2 nvidia.com/gpu on one node, and no node that the spec admits offers it",
       [](FakeCluster& c) { c.devices = 0, c.show_devices(0); }},
      {"Unschedulable", "persistentvolumeclaim \"models\" not found", [](FakeCluster& c) { c.claim_goes = true; }},
      {"QuotaExceeded", "exceeded quota: gpus",
       [](FakeCluster& c) {
         c.refuse = [](const k8s::Request& request) -> std::optional<k8s::ApiError> {
           if (request.resource != k8s::pods_resource || request.verb != k8s::Verb::Create ||
               request.name.find("inspect") != std::string::npos)
             return std::nullopt;
           return k8s::ApiError{k8s::Failure::Forbidden, 403, "Forbidden",
                                "pods \"m-0-0-1\" is forbidden: exceeded quota: gpus", 0};
         };
       }},
      {"ImagePullFailed", "ImagePullBackOff of \"w\"", [](FakeCluster& c) { c.workers_start = false; }},
      {"ImagePullFailed", "InvalidImageName of \"w\"",
       [](FakeCluster& c) { c.workers_start = false, c.waiting_reason = "InvalidImageName"; }},
      {"VolumeNotMounted", "CreateContainerConfigError of \"w\"",
       [](FakeCluster& c) { c.workers_start = false, c.waiting_reason = "CreateContainerConfigError"; }},
      {"VolumeNotMounted", "secret \"keys\" not found",
       [](FakeCluster& c) { c.worker_mount_failure = "MountVolume.SetUp failed: secret \"keys\" not found"; }},
      {"Starting", "the kubelet cannot create its sandbox: no network",
       [](FakeCluster& c) { c.worker_mount_failure = "no network", c.kubelet_says = "FailedCreatePodSandBox"; },
       nullptr, false},
      {"Starting", "CreateContainerError: CreateContainerError of \"w\"",
       [](FakeCluster& c) { c.workers_start = false, c.waiting_reason = "CreateContainerError"; }, nullptr, false},
      {"Starting", "its worker starts", [](FakeCluster& c) { c.workers_ready = false; }, nullptr, false},
      {"RankLost", "rank 1 says why", [](FakeCluster&) {}, [](FakeCluster& c) { end_with(c, "RankLost"); }, false},
      {"RankHung", "rank 1 says why", [](FakeCluster&) {}, [](FakeCluster& c) { end_with(c, "RankHung"); }, false},
      {"CommunicatorAborted", "rank 1 says why", [](FakeCluster&) {},
       [](FakeCluster& c) { end_with(c, "CommunicatorAborted"); }, false},
      {"DeviceFault", "rank 1 says why", [](FakeCluster&) {}, [](FakeCluster& c) { end_with(c, "DeviceFault"); },
       false},
      {"OOMKilled", "memory limit", [](FakeCluster&) {},
       [](FakeCluster& c) {
         c.change_pod("m-0-0-1", [](Json& pod) {
           pod["status"]["containerStatuses"] = Json::array(
               {{{"name", "worker"}, {"state", {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}}}}});
         });
       },
       false},
      {"NoDevice", "NoDevice: --device cuda: this host shows none", [](FakeCluster&) {},
       [](FakeCluster& c) {
         c.change_pod("m-0-0-1", [](Json& pod) {  // refused before the launcher started: only its log tells
           pod["status"]["containerStatuses"] = Json::array(
               {{{"name", "worker"},
                 {"state",
                  {{"terminated",
                    {{"exitCode", 2},
                     {"reason", "Error"},
                     {"message", "W1122 a line of the log\nNoDevice: --device cuda: this host shows none\n"}}}}}}});
         });
       },
       false},
      {"DeviceFault", "UnexpectedAdmissionError: no healthy devices", [](FakeCluster&) {},
       [](FakeCluster& c) { end_pod(c, "UnexpectedAdmissionError", "no healthy devices"); }, false},
      {"NodeLost", "Evicted: low on memory", [](FakeCluster&) {},
       [](FakeCluster& c) { end_pod(c, "Evicted", "low on memory"); }, false},
      {"NodeLost", "node node-a of pod m-0-0-1 is gone or not ready", [](FakeCluster&) {}, lose_node, false},
  };
  return all;
}

TEST(Reasons, OfPodsThatDoNotRunAreInScheduledAndReady) {
  for (const Case& one : cases()) {
    if (one.after) continue;
    SCOPED_TRACE(std::string(one.reason) + ": " + one.message);
    FakeCluster cluster;
    FakeOperator fake_operator{cluster};
    one.before(cluster);
    cluster.apply(model_named("m", one.devices));
    for (int second = 0; second < 40; ++second) {  // Events are listed after 20 s
      fake_operator.reconcile();
      cluster.tick();
    }
    fake_operator.reconcile();
    EXPECT_FALSE(cluster.is_true("Ready"));
    EXPECT_EQ(cluster.reason("Ready"), one.reason);
    EXPECT_THAT(k8s::string_at(*cluster.condition("Ready"), "/message"), HasSubstr(one.message));
    if (!one.scheduled) continue;
    EXPECT_FALSE(cluster.is_true("Scheduled"));
    EXPECT_EQ(cluster.reason("Scheduled"), one.reason);
    EXPECT_THAT(k8s::string_at(*cluster.condition("Scheduled"), "/message"), HasSubstr(one.message));
    EXPECT_TRUE(std::any_of(fake_operator.events.begin(), fake_operator.events.end(), [&](const Event& event) {
      return event.warning && event.reason == one.reason;
    })) << "no Event was recorded";
    EXPECT_TRUE(fake_operator.requeue || std::string(one.reason) != "QuotaExceeded")
        << "only time tells when there is room";
  }
}

TEST(Reasons, OfPodsThatEndedAreInLastFailureAndInAnEvent) {
  for (const Case& one : cases()) {
    if (!one.after) continue;
    SCOPED_TRACE(std::string(one.reason) + ": " + one.message);
    FakeCluster cluster;
    FakeOperator fake_operator{cluster};
    cluster.apply(model_named("m", one.devices));
    ASSERT_TRUE(fake_operator.settle());
    one.after(cluster);
    fake_operator.reconcile();
    EXPECT_FALSE(cluster.is_true("Ready"));
    const Json& failure = cluster.model()["status"]["lastFailure"];
    EXPECT_EQ(k8s::string_at(failure, "/reason"), one.reason);
    EXPECT_THAT(k8s::string_at(failure, "/message"), HasSubstr(one.message));
    EXPECT_TRUE(std::any_of(fake_operator.events.begin(), fake_operator.events.end(), [&](const Event& event) {
      return event.reason == "ReplicaRestarted" && event.note.find(one.reason) != std::string::npos;
    }));
  }
}

}  // namespace
}  // namespace pm::op::test
