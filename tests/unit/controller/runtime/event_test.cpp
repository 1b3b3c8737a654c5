// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "controller/core/status_error.h"
#include "controller/runtime/event_recorder.h"
#include "controller/runtime/event_series.h"
#include "fake_cluster.h"

using namespace pm::k8s;
using namespace pm::k8s::test;
using namespace std::chrono_literals;

namespace {
const Json model = {{"apiVersion", "example.com/v1"},
                    {"kind", "Model"},
                    {"metadata", {{"namespace", "n"}, {"name", "m"}, {"uid", "u"}}}};
Occurrence occurrence(const std::string& note = "text") {
  return {reference_to(model), "Warning", "RankLost", "Restart", note};
}
const Clock::Wall t0{std::chrono::seconds(1'700'000'000)};
}  // namespace

TEST(EventSeries, TheFirstOccurrenceIsAnEvent) {
  EventSeries series("example.com/controller", "pod-1");
  const auto request = series.observe(occurrence(), t0);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->verb, Verb::Create);
  EXPECT_EQ(request->ns, "n");
  EXPECT_EQ(request->body["eventTime"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(request->body["regarding"]["uid"], "u");
  EXPECT_EQ(request->body["reportingController"], "example.com/controller");
  EXPECT_EQ(request->body["metadata"]["name"], request->name);
  EXPECT_FALSE(request->body.contains("series"));
}

TEST(EventSeries, AThousandRepetitionsAreOneEventAndFewPatches) {
  EventSeries series("c", "i");
  int creates = 0, patches = 0, last = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto request = series.observe(occurrence(), t0 + i * 10ms);
    if (!request) continue;
    if (request->verb == Verb::Create) {
      ++creates;
    } else {
      ++patches;
      last = request->body["series"]["count"];
    }
  }
  EXPECT_EQ(creates, 1);
  EXPECT_EQ(patches, 9);
  EXPECT_EQ(last, 512);
}

TEST(EventSeries, SlowRepetitionsAreToldOnceAMinuteAndEndAfterSix) {
  EventSeries series("c", "i");
  series.observe(occurrence(), t0);
  series.observe(occurrence(), t0 + 1s);
  EXPECT_FALSE(series.observe(occurrence(), t0 + 30s));
  EXPECT_TRUE(series.observe(occurrence(), t0 + 62s));
  EXPECT_EQ(series.observe(occurrence(), t0 + 62s + 361s)->verb, Verb::Create);
}

TEST(EventSeries, DifferentNotesAreDifferentEventsWithDifferentNames) {
  EventSeries series("c", "i");
  EXPECT_NE(series.observe(occurrence("one"), t0)->name, series.observe(occurrence("two"), t0)->name);
}

TEST(EventSeries, ALostEventIsMadeAgain) {
  EventSeries series("c", "i");
  const auto made = series.observe(occurrence(), t0);
  series.lost(made->ns, made->name);
  EXPECT_EQ(series.observe(occurrence(), t0)->verb, Verb::Create);
}

TEST(EventSeries, FieldsAreCutToWhatTheServerTakes) {
  EventSeries series("c", "i");
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "ü";
  const auto request = series.observe(occurrence("x" + umlauts), t0);
  EXPECT_EQ(request->body["note"].get<std::string>().size(), 1023u) << "cut between characters";
  Json node = {{"kind", "Node"}, {"metadata", {{"name", std::string(253, 'a')}}}};
  const auto long_name = series.observe({reference_to(node), "Normal", "R", "A", "n"}, t0);
  EXPECT_EQ(long_name->ns, "default");
  EXPECT_LE(long_name->name.size(), 253u);
}

TEST(EventRecorder, SendsWithoutBlockingAndFinishesWithinASecond) {
  FakeCluster cluster;
  ManualClock clock;
  {
    EventRecorder events(cluster, clock, "c", "i");
    for (int i = 0; i < 3; ++i) events.record(model, EventRecorder::Type::Warning, "RankLost", "Restart", "text");
  }
  EXPECT_EQ(cluster.count(Verb::Create, events_resource), 1u);
  EXPECT_EQ(cluster.count(Verb::MergePatch, events_resource), 1u);
}

TEST(EventRecorder, AFailingServerCostsNothingButTheEvent) {
  FakeCluster cluster;
  ManualClock clock;
  std::atomic<int> tries{0};
  cluster.fault = [&](const Request&) -> std::optional<ApiError> {
    ++tries;
    return no_answer("down");
  };
  const auto begin = std::chrono::steady_clock::now();
  {
    EventRecorder events(cluster, clock, "c", "i");
    for (int i = 0; i < 5000; ++i) events.record(model, EventRecorder::Type::Normal, "R", "A", "text");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_GT(tries, 0);
}
