// SPDX-License-Identifier: Apache-2.0
#include "controller/core/selector.h"

#include <gtest/gtest.h>

using namespace pm::k8s;

namespace {
bool match(const char* selector, const char* labels) {
  return matches(parse_selector(selector), {{"metadata", {{"labels", Json::parse(labels)}}}});
}
}  // namespace

TEST(Selector, EveryTermMustHold) {
  EXPECT_TRUE(match("", "{}"));
  EXPECT_TRUE(match("a", R"({"a":""})"));
  EXPECT_FALSE(match("a", R"({"b":""})"));
  EXPECT_TRUE(match("a=b,c!=d", R"({"a":"b"})"));
  EXPECT_FALSE(match("a==b, c!=d", R"({"a":"b","c":"d"})"));
  EXPECT_TRUE(match("!x/y", R"({"a":"b"})"));
  EXPECT_FALSE(match("!x/y", R"({"x/y":"b"})"));
  EXPECT_TRUE(match("a=", R"({"a":""})"));
}

TEST(Selector, WhatItDoesNotUnderstandIsRefused) {
  for (const char* text : {"a in (b)", ",", "a,", "a>1"})
    EXPECT_THROW(parse_selector(text), std::invalid_argument) << text;
}

TEST(Selector, ObjectsWithoutLabelsMatchOnlyAbsence) {
  EXPECT_FALSE(matches(parse_selector("a"), Json::object()));
  EXPECT_TRUE(matches(parse_selector("!a"), Json()));
}

TEST(Selector, FormatsInOrder) { EXPECT_EQ(format_selector({{"b", "2"}, {"a/x", "1"}}), "a/x=1,b=2"); }
