// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

using namespace pm::k8s;

namespace {

Json object(const std::string& name, const std::string& version, const std::string& owner = "",
            const std::string& label = "") {
  Json made = {
      {"metadata",
       {{"namespace", "n"}, {"name", name}, {"resourceVersion", version}, {"uid", std::string("u").append(name)}}}};
  if (!owner.empty()) made["metadata"]["ownerReferences"] = {{{"controller", true}, {"uid", owner}}};
  if (!label.empty()) made["metadata"]["labels"] = {{"group", label}};
  return made;
}

std::vector<std::string> names(const std::vector<ObjectPtr>& objects) {
  std::vector<std::string> names;
  for (const auto& one : objects) names.push_back(key_of(*one).name);
  return names;
}
using Names = std::vector<std::string>;

struct StoreTest : testing::TestWithParam<bool> {
  StoreWriter writer{{.indexes = {{"group", by_label("group")}}, .packed = GetParam()}};
  Store store = writer.reader();
  std::vector<Change> relist(const std::vector<Json>& objects, const std::string& version) {
    writer.begin_list();
    for (const Json& one : objects) writer.list_item(one);
    std::vector<Change> changes;
    writer.finish_list(version, [&](const Change& change) { changes.push_back(change); });
    return changes;
  }
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Kept, StoreTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Packed" : "Whole"; });

TEST_P(StoreTest, IsEmptyAndUnsyncedUntilTheWholeListIsIn) {
  writer.begin_list();
  writer.list_item(object("a", "1"));
  EXPECT_FALSE(store.synced());
  EXPECT_EQ(store.get({"n", "a"}), nullptr);
  int changes = 0;
  writer.finish_list("5", [&](const Change&) { ++changes; });
  EXPECT_EQ(changes, 1);
  EXPECT_TRUE(store.synced());
  EXPECT_EQ(store.version(), "5");
  EXPECT_EQ(store.size(), 1u);
}

TEST_P(StoreTest, ARelistReportsExactlyWhatDiffers) {
  relist({object("kept", "1"), object("changed", "2"), object("gone", "3")}, "5");
  const auto changes = relist({object("kept", "1"), object("changed", "7"), object("new", "8")}, "9");
  ASSERT_EQ(changes.size(), 3u);
  std::map<std::string, std::pair<bool, bool>> sides;
  for (const auto& change : changes)
    sides[key_of(change.after ? *change.after : *change.before).name] = {!!change.before, !!change.after};
  EXPECT_EQ(sides["changed"], std::pair(true, true));
  EXPECT_EQ(sides["gone"], std::pair(true, false));
  EXPECT_EQ(sides["new"], std::pair(false, true));
  EXPECT_EQ(names(store.list()), (Names{"changed", "kept", "new"}));
}

TEST_P(StoreTest, AnAbandonedListLeavesNoTrace) {
  relist({object("a", "1")}, "5");
  writer.begin_list();
  writer.list_item(object("b", "2"));
  relist({object("a", "1")}, "6");
  EXPECT_EQ(names(store.list()), Names{"a"});
}

TEST_P(StoreTest, IndexesFollowEveryChange) {
  relist({object("a", "1", "o1", "x"), object("b", "2", "o1", "y")}, "5");
  EXPECT_EQ(names(store.owned_by("o1")), (Names{"a", "b"}));
  writer.apply(object("a", "6", "o2", "y"));
  EXPECT_EQ(names(store.owned_by("o1")), Names{"b"});
  EXPECT_EQ(names(store.with("group", "y")), (Names{"a", "b"}));
  EXPECT_TRUE(store.with("group", "x").empty());
  writer.remove(object("b", "7", "o1", "y"));
  EXPECT_TRUE(store.owned_by("o1").empty());
  EXPECT_EQ(names(store.with("group", "y")), Names{"a"});
  EXPECT_THROW(store.with("other", "y"), std::logic_error);
}

TEST_P(StoreTest, KeysAreToldWithoutALookAtTheObjects) {
  relist({object("b", "1", "o1", "x"), object("a", "2", "o1", "x"), object("c", "3")}, "5");
  EXPECT_EQ(store.keys(), (std::vector<Key>{{"n", "a"}, {"n", "b"}, {"n", "c"}}));
  EXPECT_EQ(store.keys_with("group", "x"), (std::vector<Key>{{"n", "a"}, {"n", "b"}}));
  EXPECT_TRUE(store.keys_with("group", "y").empty());
  EXPECT_THROW((void)store.keys_with("other", "y"), std::logic_error);
}

TEST_P(StoreTest, AnObjectThatIsListedTwiceIsIndexedAsItWasLast) {  // recreated between two pages
  relist({object("a", "1", "o1", "x"), object("a", "2", "o2", "y")}, "5");
  EXPECT_EQ(store.size(), 1u);
  EXPECT_TRUE(store.owned_by("o1").empty());
  EXPECT_EQ(names(store.with("group", "y")), Names{"a"});
  EXPECT_TRUE(store.with("group", "x").empty());
}

TEST_P(StoreTest, OlderEventsDoNotTravelBack) {
  relist({object("a", "5")}, "5");
  EXPECT_EQ(writer.apply(object("a", "4")).after, nullptr);
  EXPECT_EQ(writer.remove(object("a", "4")).before, nullptr);
  EXPECT_EQ(version_of(*store.get({"n", "a"})), "5");
  writer.apply(object("a", "12"));
  EXPECT_EQ(store.version(), "12");
  writer.advance("9");
  EXPECT_EQ(store.version(), "12");
  writer.advance("20");
  EXPECT_EQ(store.version(), "20");
}

TEST_P(StoreTest, RemovingTheUnknownChangesNothing) {
  relist({}, "5");
  const Change change = writer.remove(object("a", "6"));
  EXPECT_FALSE(change.before || change.after);
  EXPECT_EQ(store.version(), "6");
}

TEST_P(StoreTest, PrunesBeforeItStores) {
  Json fat = object("a", "1");
  fat["metadata"]["managedFields"] = Json::array({1, 2});
  fat["metadata"]["annotations"] = {{"kubectl.kubernetes.io/last-applied-configuration", "{}"}, {"kept", "1"}};
  relist({fat}, "5");
  const auto slim = store.get({"n", "a"});
  EXPECT_FALSE((*slim)["metadata"].contains("managedFields"));
  EXPECT_EQ((*slim)["metadata"]["annotations"].size(), 1u);
}

TEST(StorePrune, APruneThatThrowsLeavesTheObjectWhole) {
  StoreWriter writer({.prune = [](Json& object) {
    object.erase("spec");
    throw std::runtime_error("odd object");
  }});
  Json odd = object("a", "1");
  odd["spec"] = 1;
  writer.apply(odd);
  EXPECT_EQ(*writer.reader().get({"n", "a"}), odd);
}

TEST_P(StoreTest, ReadersSeeWholeListsOnly) {
  // Each list holds 50 objects of one version; a reader must never see two versions at once, nor a different number.
  const auto whole = [](const std::string& version) {
    std::vector<Json> objects;
    for (int i = 0; i < 50; ++i) objects.push_back(object(std::to_string(i), version, version));
    return objects;
  };
  relist(whole("1"), "1");
  std::atomic<bool> stop{false};
  std::jthread reader([&] {
    while (!stop) {
      const auto seen = store.list();
      ASSERT_EQ(seen.size(), 50u);
      for (const auto& one : seen) ASSERT_EQ(version_of(*one), version_of(*seen[0]));
      const size_t owned = store.owned_by(version_of(*seen[0])).size();
      ASSERT_TRUE(owned == 50 || owned == 0);
    }
  });
  for (int v = 2; v < 200; ++v) relist(whole(std::to_string(v)), std::to_string(v));
  stop = true;
}
