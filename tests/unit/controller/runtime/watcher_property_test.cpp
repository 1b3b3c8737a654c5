// SPDX-License-Identifier: Apache-2.0
// Tests Watcher and Store against a collection that changes while requests fail randomly: in the end they are equal.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "controller/core/status_error.h"
#include "controller/runtime/store.h"
#include "controller/runtime/watcher.h"
#include "fake_cluster.h"

using namespace pm::k8s;
using namespace pm::k8s::test;
using namespace std::chrono_literals;

namespace {

Json object(const std::string& name, long version) {
  return {{"metadata", {{"name", name}, {"resourceVersion", std::to_string(version)}}}};
}
ApiError error(int code) { return classify(code, ""); }

struct World {
  std::mt19937 random;
  std::map<std::string, long> objects;  ///< name -> version
  std::vector<std::pair<long, WatchEvent>> history;
  long version = 9'990, compacted = 0;                 ///< crosses a power of ten: versions are numbers, not text
  std::vector<std::pair<std::string, long>> snapshot;  ///< what the pages of the running list show
  long snapshot_version = 0;

  ManualClock clock;
  Watcher watcher{clock, [] { return 0.5; }};
  StoreWriter writer;
  Store store = writer.reader();
  std::set<std::string> heard;  ///< what a listener to the changes believes
  bool faulty = true;

  int pick(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return faulty && pick(100) < percent; }

  void mutate() {
    const std::string name(1, static_cast<char>('a' + pick(8)));
    if (objects.contains(name) && pick(2)) {
      objects.erase(name);
      history.push_back({++version, {WatchEvent::Type::Deleted, object(name, version)}});
    } else {
      const auto type = objects.contains(name) ? WatchEvent::Type::Modified : WatchEvent::Type::Added;
      objects[name] = ++version;
      history.push_back({version, {type, object(name, version)}});
    }
    if (pick(10) == 0) compacted = version - pick(3);
  }

  void hear(const Change& change) {
    if (change.after) heard.insert(key_of(*change.after).name);
    if (change.before && !change.after) heard.erase(key_of(*change.before).name);
  }
  void apply(std::vector<Effect> effects) {
    for (Effect& effect : effects) {
      switch (effect.kind) {
        case Effect::Kind::BeginList:
          writer.begin_list();
          break;
        case Effect::Kind::Item:
          writer.list_item(std::move(effect.object));
          break;
        case Effect::Kind::FinishList:
          writer.finish_list(effect.version, [this](const Change& change) { hear(change); });
          break;
        case Effect::Kind::Apply:
          hear(writer.apply(std::move(effect.object)));
          break;
        case Effect::Kind::Remove:
          hear(writer.remove(effect.object));
          break;
        case Effect::Kind::Advance:
          writer.advance(effect.version);
          break;
      }
    }
  }

  Response list(const ListPage& page) {
    if (chance(20)) return error(std::array{500, 503, 429, 403}[static_cast<size_t>(pick(4))]);
    if (chance(5)) return no_answer("lost");
    const size_t begin = page.token.empty() ? 0 : std::stoul(page.token);
    if (page.token.empty()) {
      snapshot.assign(objects.begin(), objects.end());
      snapshot_version = version;
    } else if (chance(20)) {
      return error(410);
    }
    const size_t end = page.limit > 0 ? std::min(snapshot.size(), begin + static_cast<size_t>(page.limit > 100 ? 4 : 2))
                                      : snapshot.size();
    Json items = Json::array();
    for (size_t i = begin; i < end; ++i) items.push_back(object(snapshot[i].first, snapshot[i].second));
    Json metadata = {{"resourceVersion", std::to_string(snapshot_version)}};
    if (end < snapshot.size()) metadata["continue"] = std::to_string(end);
    return Json{{"items", items}, {"metadata", metadata}};
  }

  void watch(const StartWatch& start) {
    long from = std::stol(start.version);
    if (from < compacted) return watcher.ended(error(410), 1ms);
    if (chance(15)) return watcher.ended(error(std::array{429, 503, 401, 504, 404}[static_cast<size_t>(pick(5))]), 1ms);
    for (const auto& [at, event] : history) {
      if (at <= from) continue;
      if (chance(20)) return watcher.ended(no_answer("cut"), 2s);
      apply(watcher.event(WatchEvent(event)));
      from = at;
    }
    if (pick(3) == 0)
      apply(
          watcher.event({WatchEvent::Type::Bookmark, {{"metadata", {{"resourceVersion", std::to_string(version)}}}}}));
    watcher.ended({}, 2s);
  }

  void step() {
    const Step next = watcher.next();
    if (const auto* page = std::get_if<ListPage>(&next)) apply(watcher.listed(list(*page)));
    if (const auto* start = std::get_if<StartWatch>(&next)) watch(*start);
  }

  std::map<std::string, long> stored() const {
    std::map<std::string, long> out;
    for (const auto& one : store.list()) out[key_of(*one).name] = std::stol(version_of(*one));
    return out;
  }
};

}  // namespace

TEST(WatcherProperty, AnyMixOfChangesAndFaultsEndsEqual) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (unsigned round = 0; round < 500; ++round) {
    World world;
    world.random.seed(seed + round);
    long newest = 0;
    for (int i = 0; i < 100; ++i) {
      if (world.pick(2)) world.mutate();
      world.step();
      std::set<std::string> names;
      for (const auto& [name, version] : world.stored()) names.insert(name);
      ASSERT_EQ(names, world.heard) << "listeners are told of every difference";
      const std::string version = world.store.version();
      ASSERT_GE(version.empty() ? 0 : std::stol(version), newest) << "the view never travels back in time";
      newest = version.empty() ? 0 : std::stol(version);
    }
    world.faulty = false;
    for (int i = 0; i < 20; ++i) world.step();
    ASSERT_EQ(world.stored(), world.objects) << "round " << round;
  }
}
