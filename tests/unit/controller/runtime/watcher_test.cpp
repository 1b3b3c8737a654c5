// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/watcher.h"

#include <gtest/gtest.h>

#include "controller/core/status_error.h"
#include "fake_cluster.h"

using namespace pm::k8s;
using namespace pm::k8s::test;
using namespace std::chrono_literals;
using Kind = Effect::Kind;

namespace {

struct WatcherTest : testing::Test {
  ManualClock clock;
  Watcher watcher{clock, [] { return 0.0; }};

  static Json pod(const char* name, const char* version) {
    return {{"metadata", {{"name", name}, {"resourceVersion", version}}}};
  }
  static Json list(std::vector<Json> items, const char* version, const char* token = "") {
    return {{"items", items}, {"metadata", {{"resourceVersion", version}, {"continue", token}}}};
  }
  static std::vector<Kind> kinds(const std::vector<Effect>& effects) {
    std::vector<Kind> kinds;
    for (const auto& effect : effects) kinds.push_back(effect.kind);
    return kinds;
  }
  static ApiError error(int code, const char* reason = "") {
    return classify(code, Json{{"kind", "Status"}, {"reason", reason}}.dump());
  }

  void expire_until_one_piece() {
    for (const int next : {1000, 0}) {
      watcher.listed(list({pod("a", "3")}, "10", "t1"));
      EXPECT_TRUE(watcher.listed(error(410, "Expired")).empty());
      EXPECT_EQ(watcher.next(), Step(ListPage{"", next}));
    }
  }
  void reach_watching() {
    watcher.listed(list({}, "10"));
    ASSERT_EQ(watcher.next(), Step(StartWatch{"10", 300}));
  }
};

}  // namespace

TEST_F(WatcherTest, ListsThenWatchesFromTheListsVersion) {
  EXPECT_EQ(watcher.next(), Step(ListPage{}));
  const auto effects = watcher.listed(list({pod("a", "3")}, "10"));
  EXPECT_EQ(kinds(effects), (std::vector{Kind::BeginList, Kind::Item, Kind::FinishList}));
  EXPECT_EQ(effects[2].version, "10");
  EXPECT_EQ(watcher.next(), Step(StartWatch{"10", 300}));
}

TEST_F(WatcherTest, PagesAreOneList) {
  EXPECT_EQ(kinds(watcher.listed(list({pod("a", "3")}, "10", "t1"))), (std::vector{Kind::BeginList, Kind::Item}));
  EXPECT_EQ(watcher.next(), Step(ListPage{"t1"}));
  EXPECT_EQ(kinds(watcher.listed(list({pod("b", "4")}, "10"))), (std::vector{Kind::Item, Kind::FinishList}));
}

TEST_F(WatcherTest, AnExpiredTokenStartsTheListInLongerPagesAndThenInOnePiece) {
  expire_until_one_piece();
  EXPECT_EQ(kinds(watcher.listed(list({}, "12")))[0], Kind::BeginList);
  watcher.next();
  watcher.ended(error(410), 5s);
  EXPECT_EQ(watcher.next(), Step(ListPage{})) << "the next list is paged again";
}

TEST_F(WatcherTest, AListInOnePieceThatFailsIsAskedForInPagesAgain) {
  expire_until_one_piece();
  watcher.listed(no_answer("the answer is longer than 67108864 bytes"));
  EXPECT_EQ(watcher.next(), Step(Wait{800ms}));
  EXPECT_EQ(watcher.next(), Step(ListPage{}));
}

TEST_F(WatcherTest, AListThatFailsForNowGoesOnWithItsPageAfterAPause) {
  watcher.listed(list({pod("a", "3")}, "10", "t1"));
  watcher.listed(error(503));
  EXPECT_EQ(watcher.next(), Step(Wait{800ms}));
  EXPECT_EQ(watcher.next(), Step(ListPage{"t1"}));
}

TEST_F(WatcherTest, AListThatMakesNoSenseIsAskedForAgain) {
  for (const Json& nonsense : {Json(), Json::array(), Json{{"items", 3}}, Json{{"items", Json::array()}}}) {
    EXPECT_TRUE(watcher.listed(nonsense).empty());
    EXPECT_TRUE(std::holds_alternative<Wait>(watcher.next()));
    EXPECT_EQ(watcher.next(), Step(ListPage{}));
  }
}

TEST_F(WatcherTest, EveryEventAndBookmarkMovesTheVersion) {
  reach_watching();
  EXPECT_EQ(kinds(watcher.event({WatchEvent::Type::Added, pod("a", "11")})), (std::vector{Kind::Apply}));
  EXPECT_EQ(kinds(watcher.event({WatchEvent::Type::Modified, pod("a", "12")})), (std::vector{Kind::Apply}));
  EXPECT_EQ(kinds(watcher.event({WatchEvent::Type::Deleted, pod("a", "13")})), (std::vector{Kind::Remove}));
  const auto bookmark = watcher.event({WatchEvent::Type::Bookmark, {{"metadata", {{"resourceVersion", "20"}}}}});
  EXPECT_EQ(kinds(bookmark), (std::vector{Kind::Advance}));
  watcher.ended({}, 5s);
  EXPECT_EQ(watcher.next(), Step(StartWatch{"20", 300}));
}

TEST_F(WatcherTest, EventsWithoutNameOrVersionTellNothing) {
  reach_watching();
  EXPECT_TRUE(watcher.event({WatchEvent::Type::Added, Json::object()}).empty());
  EXPECT_TRUE(watcher.event({WatchEvent::Type::Bookmark, Json::object()}).empty());
  EXPECT_TRUE(watcher.event({WatchEvent::Type::Added, {{"metadata", {{"resourceVersion", "20"}}}}}).empty());
  EXPECT_EQ(watcher.version(), "10");
}

/// The step that follows the end of a watch: a watch from the old version or a list, with or without a wait.
TEST_F(WatcherTest, TheEndOfAWatchDecidesWhatFollows) {
  struct Row {
    const char* what;
    std::optional<ApiError> end;
    std::chrono::milliseconds lasted;
    bool pause, relist;
  };
  const Row table[] = {
      {"a clean end", {}, 300s, false, false},
      {"a clean end within a second and without an event is a failure", {}, 10ms, true, false},
      {"a stream cut after a while", no_answer("read"), 30s, false, false},
      {"connection refused", no_answer("refused"), 1ms, true, false},
      {"overload", error(429), 1ms, true, false},
      {"overload reported late", error(429), 5s, true, false},
      {"a server that restarts", error(503), 1ms, true, false},
      {"a server error", error(500), 1ms, true, false},
      {"a token that will be renewed", error(401), 1ms, true, false},
      {"rights that may come", error(403), 1ms, true, false},
      {"version too old, after some time", error(410, "Expired"), 40s, false, true},
      {"version too old, at once: not in a loop", error(410, "Expired"), 1ms, true, true},
      {"version from the future", error(504, "Timeout"), 3s, true, true},
      {"the kind does not exist", error(404), 1ms, true, true},
      {"anything else", error(400), 1ms, true, true},
  };
  for (const Row& row : table) {
    Watcher fresh(clock, [] { return 0.0; });
    fresh.listed(list({}, "10"));
    fresh.next();
    fresh.ended(row.end, row.lasted);
    Step step = fresh.next();
    EXPECT_EQ(std::holds_alternative<Wait>(step), row.pause) << row.what;
    if (row.pause) step = fresh.next();
    EXPECT_EQ(step, row.relist ? Step(ListPage{}) : Step(StartWatch{"10", 300})) << row.what;
  }
}

TEST_F(WatcherTest, AShortWatchWithAnEventIsNoFailure) {
  reach_watching();
  watcher.event({WatchEvent::Type::Added, pod("a", "11")});
  watcher.ended({}, 10ms);
  EXPECT_EQ(watcher.next(), Step(StartWatch{"11", 300}));
}

TEST_F(WatcherTest, RepeatedFailuresWaitLongerAndAtLeastAsAsked) {
  reach_watching();
  for (const auto expected : {800ms, 1600ms, 3200ms}) {
    watcher.ended(no_answer("refused"), 1ms);
    EXPECT_EQ(watcher.next(), Step(Wait{expected}));
    watcher.next();
  }
  ApiError busy = error(429);
  busy.retry_after = 20;
  watcher.ended(busy, 1ms);
  EXPECT_EQ(watcher.next(), Step(Wait{20s}));
}

TEST_F(WatcherTest, WatchesAreSpreadOverFiveToTenMinutes) {
  Watcher late(clock, [] { return 0.999; });
  late.listed(list({}, "10"));
  EXPECT_EQ(late.next(), Step(StartWatch{"10", 599}));
}
