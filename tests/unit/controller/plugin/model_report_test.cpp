// SPDX-License-Identifier: Apache-2.0
// Tests what `kubectl pm status`, why and ranks print.
#include "controller/plugin/model_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "controller/plugin/table.h"

namespace pm::plugin::test {
namespace {

using k8s::Json;
using testing::HasSubstr;

constexpr const char* serving = R"({
  "metadata": {"name": "stories", "namespace": "models"},
  "spec": {"model": {"source": "hf://org/stories"}, "replicas": 2},
  "status": {
    "readyReplicas": 1, "endpoint": "http://stories.models.svc:8000", "fetchSeconds": 200,
    "startup": "12 s: scheduled 0 s, pulled 1 s, loaded 8 s, warmed up 3 s",
    "plan": {"reason": "LowestLatency", "message": "Tensor x 2 over 2 devices", "revision": "abc", "planHash": "h"},
    "conditions": [
      {"type": "Planned", "status": "True", "reason": "LowestLatency", "message": "Tensor x 2 over 2 devices",
       "lastTransitionTime": "2026-01-01T00:00:00Z"},
      {"type": "Ready", "status": "False", "reason": "Loading", "message": "replica 1: loads 5.0 MiB of 20.0 MiB",
       "lastTransitionTime": "2026-01-01T00:01:00Z"}],
    "replicaStatuses": [
      {"index": 0, "replicaGeneration": 1, "ready": true, "reason": "Serving", "restarts": 0, "nodes": ["a", "b"],
       "startupSeconds": {"scheduled": 0, "pulled": 1, "loaded": 8, "warmed": 3, "total": 12},
       "ranks": [{"rank": 0, "node": "a", "total": 2147483648, "predicted": {"weights": 1048576, "kv": 1048576},
                  "measuredAtLoad": {"weights": 1050000, "kv": 1048576, "runtime": 1000}},
                 {"rank": 1, "node": "b", "total": 2147483648, "predicted": {"weights": 1048576, "kv": 1048576}}]},
      {"index": 1, "replicaGeneration": 3, "ready": false, "reason": "Loading", "restarts": 2, "nodes": ["c"],
       "ranks": [{"rank": 0, "node": "c", "total": 2147483648, "predicted": {"weights": 1048576, "kv": 0}}]}],
    "lastFailure": {"replica": 1, "replicaGeneration": 2, "rank": 1, "exitCode": 137, "reason": "OOMKilled",
                    "message": "the memory limit of the pod was reached", "time": "2026-01-01T00:00:30Z"}}})";

TEST(Table, AlignsColumnsAndEndsNoLineInSpaces) {
  EXPECT_EQ(table({{"A", "LONG", "C"}, {"longer", "x", ""}}), "A        LONG   C\nlonger   x\n");
  EXPECT_EQ(table({}), "");
}

TEST(StatusText, IsTheWholeStory) {
  EXPECT_EQ(status_text(Json::parse(serving)), R"(ParallelModel models/stories, 1 of 2 replicas ready
  source:   hf://org/stories at abc
  plan:     LowestLatency: Tensor x 2 over 2 devices
  endpoint: http://stories.models.svc:8000
  startup:  12 s: scheduled 0 s, pulled 1 s, loaded 8 s, warmed up 3 s
  fetched:  in 3 min 20 s

CONDITION   STATUS   SINCE                  REASON          MESSAGE
Planned     True     2026-01-01T00:00:00Z   LowestLatency
Ready       False    2026-01-01T00:01:00Z   Loading         replica 1: loads 5.0 MiB of 20.0 MiB

REPLICA   GENERATION   READY   REASON    RESTARTS   STARTUP                                                      NODES
0         1            yes     Serving   0          12 s: scheduled 0 s, pulled 1 s, loaded 8 s, warmed up 3 s   a, b
1         3            no      Loading   2          -                                                            c

last failure, 2026-01-01T00:00:30Z: replica 1, generation 2, rank 1, exit code 137
  OOMKilled: the memory limit of the pod was reached
)");
}

TEST(StatusText, OfAModelThatNobodyReconciledAsksForTheController) {
  const Json model{{"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", {{"replicas", 1}}}};
  EXPECT_THAT(status_text(model), HasSubstr("does the controller run"));
}

TEST(RanksText, HasWhatStatusKnowsAndWhatPodsSayNow) {
  const std::map<std::string, Json> live{{first_pod("stories", Json::parse(serving)["status"]["replicaStatuses"][1]),
                                          Json::parse(R"({"state": "Loading", "replicaGeneration": 3, "ranks": [
         {"rank": 0, "state": "Loading", "loadBytes": 5242880, "loadTotal": 20971520, "loadSeconds": 2.5}]})")}};
  EXPECT_EQ(ranks_text(Json::parse(serving), live),
            R"(REPLICA   RANK   NODE   STATE     WEIGHTS   MEASURED   TOTAL     MEASURED   DEVICE    PROGRESS
0         0      a      Serving   1.0 MiB   1.0 MiB    2.0 MiB   2.0 MiB    2.0 GiB   -
0         1      b      Serving   1.0 MiB   -          2.0 MiB   -          2.0 GiB   -
1         0      c      Loading   1.0 MiB   -          1.0 MiB   -          2.0 GiB   5.0 MiB of 20.0 MiB, 2.0 MiB/s, 8 s left
)");
}

TEST(RanksText, WithoutRanksSaysWhy) {
  Json model = Json::parse(serving);
  model["status"]["replicaStatuses"] = Json::array();
  model["status"]["plan"]["reason"] = "DoesNotFit";
  EXPECT_THAT(ranks_text(model, {}), HasSubstr("no ranks are recorded: DoesNotFit"));
}

TEST(WhyText, WithoutAPlanHasTheRefusalWithItsAlternatives) {
  const Json model = Json::parse(R"({"metadata": {"name": "m", "namespace": "ns"}, "status": {"plan": {
    "reason": "DoesNotFit", "message": "24.0 GiB of 16.0 GiB",
    "rejected": [{"strategy": "Tensor x 2", "reason": "DoesNotFit", "message": "too large"}]}}})");
  EXPECT_EQ(why_text(model, std::nullopt),
            "DoesNotFit: 24.0 GiB of 16.0 GiB\nnot Tensor x 2 (DoesNotFit): too large\n");
}

TEST(Reports, ForeignObjectsNeverMakeThemThrow) {
  for (const char* text :
       {"null", "[]", "{}", R"({"status": 7})", R"({"status": {"replicaStatuses": [7, null, {}],
        "conditions": [[]], "plan": [], "lastFailure": {}}})",
        R"({"status": {"replicaStatuses": [{"index": "x", "ranks": [1, {"rank": -5}], "nodes": 3}]}})"}) {
    const Json model = Json::parse(text);
    EXPECT_NO_THROW(status_text(model)) << text;
    EXPECT_NO_THROW(why_text(model, std::nullopt)) << text;
    EXPECT_NO_THROW(ranks_text(model, {{"m-0-0-1", Json::parse("[1]")}})) << text;
  }
}

}  // namespace
}  // namespace pm::plugin::test
