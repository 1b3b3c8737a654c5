// Everything that can go wrong once between the operator and its cluster, at every moment of every story: events that come late, get lost or come
// twice, a process that dies, its last request that lands late, a second process beside it, a user who interferes. The end is always the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <iostream>

#include "controller/operator/names.h"
#include "controller/operator/text.h"
#include "player.h"

namespace pm::op::test {
namespace {

using Kind = Trouble::Kind;

/// Every `step`-th case, another one of each story: 1, the default, takes all. PM_TROUBLE_STEP in the environment.
size_t step_of_cases() {
  const char* text = std::getenv("PM_TROUBLE_STEP");
  return text ? static_cast<size_t>(std::max(1, std::atoi(text))) : 1;
}

/// PM_TROUBLE_WHOLE=1: every case is played from the beginning of its story to the end.
Extent extent_of_cases() {
  const char* text = std::getenv("PM_TROUBLE_WHOLE");
  return text && std::string(text) == "1" ? Extent::Whole : Extent::Needed;
}

class Rate {
 public:
  explicit Rate(std::string what) : what_(std::move(what)) {}
  ~Rate() {
    const double seconds = std::max(1e-9, processor_time() - begin_);
    std::cout << what_ << ": " << cases << " cases, " << met_before << " of them to a moment that was met before, " << requests << " requests, " << seconds << " s, "
              << static_cast<int>(static_cast<double>(cases) / seconds) << " cases/s\n";
    all_cases += cases, all_seconds += seconds;
    std::cout << "so far: " << all_cases << " cases, " << all_seconds << " s, " << static_cast<int>(static_cast<double>(all_cases) / all_seconds) << " cases/s\n";
  }
  static inline size_t all_cases = 0;
  static inline double all_seconds = 0;
  size_t cases = 0, met_before = 0, requests = 0;

 private:
  /// Of one core, whatever else the machine does.
  static double processor_time() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
  const std::string what_;
  const double begin_ = processor_time();
};

/// Who has not heard of a node yet judges its lost pod by the pod alone, and tells the same failure in other words.
Json without_words_of_failures(Json end) {
  for (Json& object : end) {
    if (!object.is_array() || object.size() < 2 || !object[1].contains("status") || !object[1]["status"].contains("lastFailure")) continue;
    for (const char* word : {"reason", "message"}) object[1]["status"]["lastFailure"].erase(word);
  }
  return end;
}

struct Case {
  Trouble trouble;
  std::string what;
  bool shape_only = false;
};
using Take = std::function<void(const Case&)>;
/// All cases of one kind in a story.
using Cases = std::function<void(const Book&, const Take&)>;

std::string to_string(const Book& book, const Case& one) {
  return std::string(book.scenario.name) + ": " + one.what + " " + one.trouble.plural + " " + std::to_string(one.trouble.at);
}

void compare(const Case& one, const Ending& calm, const Ending& ending) {
  Json wanted = one.shape_only ? calm.shape : calm.digest, found = one.shape_only ? ending.shape : ending.digest;
  if (wanted == found) return;
  if (one.trouble.kind == Kind::Hold && one.trouble.plural == "nodes") wanted = without_words_of_failures(wanted), found = without_words_of_failures(found);
  EXPECT_TRUE(found == wanted) << Json::diff(wanted, found).dump(1).substr(0, 4000);
}

/// Plays them until one fails, for one is enough to read.
void play_all(const char* what, const Cases& cases) {
  static size_t count = 0;
  Rate rate(what);
  for (const Scenario& scenario : scenarios()) {
    Book& book = Book::of(scenario);
    ASSERT_TRUE(book.calm) << scenario.name;
    cases(book, [&](const Case& one) {
      if (count++ % step_of_cases() != 0 || testing::Test::HasFailure()) return;
      SCOPED_TRACE(to_string(book, one));
      const Played played = play(book, one.trouble, extent_of_cases());
      ++rate.cases, rate.requests += static_cast<size_t>(played.requests), rate.met_before += played.met_before ? 1 : 0;
      if (played.ending) compare(one, *book.calm, *played.ending);
    });
  }
}

Cases at_every_event(Kind kind, const char* what) {
  return [=](const Book& book, const Take& take) {
    for (const auto& [plural, count] : book.events) {
      for (size_t at = 0; at < count; ++at) take({{.kind = kind, .plural = plural, .at = at}, what});
    }
  };
}
const Cases held = at_every_event(Kind::Hold, "held from event"), lost = at_every_event(Kind::Cut, "lost at event"), repeated = at_every_event(Kind::Repeat, "repeated event");

void behind(const Book&, const Take& take) {
  for (size_t events = 1; events <= 12; ++events) take({{.kind = Kind::Lag, .at = events}, "behind by"});
}

void crashes(const Book& book, const Take& take) {
  for (const Fault fault : {Fault::BeforeRequest, Fault::AfterRequest, Fault::AnswerLost, Fault::AnswerLostUndone}) {
    for (size_t at = 0; at < book.requests; ++at) take({{.kind = Kind::Crash, .at = at, .fault = fault}, "crash of way " + std::to_string(static_cast<int>(fault)) + " at request"});
  }
}

void late_landings(const Book& book, const Take& take) {
  for (const std::string plural : {"parallelmodels", "pods", "configmaps", "services"}) {
    for (size_t at = 0; at < book.requests; ++at) take({{.kind = Kind::LateLanding, .plural = plural, .at = at}, "landing after the list of"});
  }
}

/// Two at once is what leader election prevents; should it ever fail, a pod of an old incarnation may appear for a moment, and then it must go again.
void two_operators(const Book& book, const Take& take) {
  for (size_t at = 0; at < book.requests; ++at) take({{.kind = Kind::Second, .at = at}, "the first stands still at request", true});
}

struct Interference {
  const char* what;
  std::function<void(FakeCluster&)> act;
  bool costs_a_restart = false;
};

void delete_children(FakeCluster& cluster, const std::string& plural) {
  for (const Json& object : cluster.all(plural)) {
    if (!k8s::controller_of(object)) continue;
    cluster.send({.verb = k8s::Verb::Delete, .resource = plural == "services" ? k8s::Services : k8s::PodDisruptionBudgets, .ns = "ns", .name = k8s::key_of(object).name,
                  .body = {{"preconditions", {{"uid", k8s::uid_of(object)}}}}});
  }
}

const std::vector<Interference>& interferences() {
  static const std::vector<Interference> all{
      {"deletes every Service", [](FakeCluster& c) { delete_children(c, "services"); }},
      {"deletes the disruption budget", [](FakeCluster& c) { delete_children(c, "poddisruptionbudgets"); }},
      {"annotates the model", [](FakeCluster& c) {
         if (c.find("parallelmodels", "m")) c.edit([](Json& model) { model["metadata"]["annotations"]["note"] = "seen"; });
       }},
      {"lets two seconds pass", [](FakeCluster& c) { c.tick(), c.tick(); }},
      {"takes the status away", [](FakeCluster& c) {
         if (!c.find("parallelmodels", "m")) return;
         c.taken = at(c.model(), "/status/groups");
         c.edit([](Json& model) { model.erase("status"); });
       }, true},
      {"deletes every worker pod", [](FakeCluster& c) {
         for (const Json& pod : c.with_role("pods", "worker")) {
           if (!k8s::being_deleted(pod)) c.delete_pod(k8s::key_of(pod).name);
         }
       }, true},
      {"deletes the model and makes it again", [](FakeCluster& c) {
         if (!c.find("parallelmodels", "m")) return;
         Json again{{"apiVersion", "parallelmodel.dev/v1alpha1"}, {"kind", "ParallelModel"}, {"metadata", {{"name", "m"}, {"namespace", "ns"}}}, {"spec", c.model()["spec"]}};
         if (const Json& notes = c.model()["metadata"]; notes.contains("annotations")) again["metadata"]["annotations"] = notes["annotations"];
         c.remove_model();
         c.apply(again);
       }, true},
  };
  return all;
}

void interference(const Book& book, const Take& take) {
  for (const Interference& one : interferences()) {
    if (one.costs_a_restart && book.scenario.counts) continue;
    for (size_t at = 0; at < book.requests; ++at) take({{.kind = Kind::User, .at = at, .act = one.act}, std::string("somebody ") + one.what + " at request", true});
  }
}

/// What all others are compared with, and begin with copies of.
TEST(Trouble, NothingGoesWrong) {
  Rate rate("undisturbed");
  for (const Scenario& scenario : scenarios()) {
    ++rate.cases;
    rate.requests += Book::of(scenario).requests;
    EXPECT_TRUE(Book::of(scenario).calm) << scenario.name;
  }
}

TEST(Trouble, ACollectionThatFallsBehindFromAnyEventOn) { play_all("held from event", held); }
TEST(Trouble, AnyEventLostWithAllBeforeTheNextList) { play_all("lost at event", lost); }
TEST(Trouble, AnyEventTwice) { play_all("repeated event", repeated); }
TEST(Trouble, AllCollectionsBehindByAnyNumberOfEvents) { play_all("behind by", behind); }
TEST(Trouble, AProcessThatDiesAtAnyRequestInAnyWay) { play_all("crash", crashes); }
TEST(Trouble, ALastRequestThatLandsWhileTheSuccessorLists) { play_all("late landing", late_landings); }
TEST(Trouble, ASecondOperatorThatTookOverInTheMiddleOfAnyPass) { play_all("two operators", two_operators); }
TEST(Trouble, SomebodyWhoInterferesInTheMiddleOfAnyPass) { play_all("interference", interference); }

/// What is played of a case ends as the whole of it does, in every word.
TEST(Trouble, CasesThatAreCutShortEndAsWholeOnes) {
  constexpr size_t every = 101;
  size_t count = 0, compared = 0, cut = 0;
  for (const Cases& cases : {held, lost, repeated, Cases(behind), Cases(crashes), Cases(late_landings), Cases(two_operators), Cases(interference)}) {
    for (const Scenario& scenario : scenarios()) {
      Book& book = Book::of(scenario);
      cases(book, [&](const Case& one) {
        if (count++ % every != 0 || testing::Test::HasFailure()) return;
        SCOPED_TRACE(to_string(book, one));
        const Played needed = play(book, one.trouble, Extent::Needed), whole = play(book, one.trouble, Extent::Whole);
        ASSERT_TRUE(needed.ending && whole.ending);
        EXPECT_EQ(needed.ending->digest, whole.ending->digest);
        EXPECT_EQ(needed.ending->shape, whole.ending->shape);
        ++compared, cut += needed.met_before ? 1 : 0;
      });
    }
  }
  std::cout << compared << " cases played in both ways, " << cut << " of them cut short\n";
  EXPECT_GT(cut, compared / 2);
}

}  // namespace
}  // namespace pm::op::test
