// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/own_writes.h"

#include <gtest/gtest.h>

#include "fake_cluster.h"

using namespace pm::k8s;
using namespace pm::k8s::test;

namespace {

struct OwnWritesTest : testing::Test {
  FakeCluster cluster;
  StoreWriter pods;
  OwnWrites api{cluster};
  const Key owner{"n", "m"};
  void SetUp() override {
    api.add(
        {pods_resource, "", parse_selector("app"), pods.reader(), [this](const Json&) { return std::vector{owner}; }});
    pods.begin_list();
    pods.finish_list("100");
  }
  Json create(const char* name, bool labelled = true) {
    Json body = {{"metadata", {{"name", name}, {"namespace", "n"}}}};
    if (labelled) body["metadata"]["labels"] = {{"app", "x"}};
    return object_of(api.send({Verb::Create, pods_resource, "n", name, "", body}));
  }
};

}  // namespace

TEST_F(OwnWritesTest, AKeyWaitsUntilTheStoreShowsWhatWasWrittenForIt) {
  EXPECT_TRUE(api.visible(owner));
  const Json made = create("a");
  EXPECT_FALSE(api.visible(owner));
  EXPECT_TRUE(api.visible({"n", "other"}));
  pods.apply(made);
  EXPECT_TRUE(api.visible(owner));
}

TEST_F(OwnWritesTest, TheLastOfSeveralWritesCounts) {
  const Json first = create("a"), second = create("b");
  pods.apply(first);
  EXPECT_FALSE(api.visible(owner));
  pods.apply(second);
  EXPECT_TRUE(api.visible(owner));
}

TEST_F(OwnWritesTest, ABookmarkIsEnough) {
  create("a");
  pods.advance("1000");
  EXPECT_TRUE(api.visible(owner));
}

TEST_F(OwnWritesTest, WhatTheStoreWillNeverShowIsNotWaitedFor) {
  create("a", false);
  EXPECT_TRUE(api.visible(owner)) << "the selector leaves it out";
  api.send(
      {Verb::Create, services_resource, "n", "s", "", {{"metadata", {{"name", "s"}, {"labels", {{"app", "x"}}}}}}});
  EXPECT_TRUE(api.visible(owner)) << "no store watches it";
}

TEST_F(OwnWritesTest, FailedWritesAndReadsLeaveNoTrace) {
  cluster.put(pods_resource, {{"metadata", {{"name", "a"}, {"namespace", "n"}, {"labels", {{"app", "x"}}}}}});
  EXPECT_TRUE(failed(api.send({Verb::Create, pods_resource, "n", "a", "", {{"metadata", {{"name", "a"}}}}})));
  EXPECT_FALSE(failed(api.send({Verb::Get, pods_resource, "n", "a"})));
  EXPECT_TRUE(api.visible(owner));
}
