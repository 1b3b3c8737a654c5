// SPDX-License-Identifier: Apache-2.0
#include "controller/core/packed.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <thread>

using namespace pm::k8s;

namespace {

/// Expects equal values of equal types, because 1 == 1.0 in Json.
void expect_same(const Json& a, const Json& b) {
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.type(), b.type()) << a << " " << b;
  if (!a.is_structured() || a.size() != b.size()) return;
  for (auto one = a.begin(), other = b.begin(); one != a.end(); ++one, ++other) expect_same(*one, *other);
}

Json any(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 10 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return uint64_t{random()} << (random() % 33);
    case 3:
      return -static_cast<int64_t>(random());
    case 4:
      return static_cast<int64_t>(random() % 100);
    case 5:
      return static_cast<double>(random()) / 7;
    case 6:
      return std::string(random() % 90, static_cast<char>('a' + random() % 26));
    case 7: {
      Json list = Json::array();
      for (unsigned i = random() % 40; i > 0; --i) list.push_back(any(random, depth - 1));
      return list;
    }
    default:
      break;
  }
  Json object = Json::object();
  for (unsigned i = random() % 40; i > 0; --i)
    object[std::string(random() % 70, static_cast<char>('a' + random() % 26)) + std::to_string(random() % 9)] =
        any(random, depth - 1);
  return object;
}

}  // namespace

/// Runs first, while the table of words has capacity.
TEST(Packed, WhatManyObjectsSayTakesLittle) {
  const Json object = Json::parse(
      R"({"apiVersion":"v1","kind":"Secretary","metadata":{"name":"a-1","namespace":"office","labels":{"example.com/floor":"second"}},
                                      "status":{"conditions":[{"type":"Ready","status":"True","reason":"CoffeeTaken","lastTransitionTime":"2026-01-01T00:00:00Z"}]}})");
  for (int i = 0; i < 2; ++i) (void)Packed(object);
  EXPECT_LT(Packed(object).size(), object.dump().size() / 2);
  EXPECT_EQ(Packed(object).unpack(), object);
  EXPECT_TRUE(Packed(object).same_bytes(Packed(object)));
}

TEST(Packed, EveryValueComesBack) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::pair<Json, Packed>> all;
  for (int i = 0; i < 300; ++i) {
    const Json value = any(random, 3);
    all.emplace_back(value, Packed(value));
  }
  for (const auto& [value, packed] : all) expect_same(packed.unpack(), value);
}

TEST(Packed, TheEndsOfNumbersAndTexts) {
  const Json value{0,
                   30,
                   31,
                   32,
                   127,
                   128,
                   -1,
                   -31,
                   -32,
                   0.0,
                   -0.5,
                   1e300,
                   std::numeric_limits<int64_t>::min(),
                   std::numeric_limits<int64_t>::max(),
                   std::numeric_limits<uint64_t>::max(),
                   "",
                   "a",
                   std::string(30, 'x'),
                   std::string(31, 'x'),
                   std::string(64, 'x'),
                   std::string(65, 'x'),
                   std::string(100000, 'x'),
                   std::string("\0\n\xc3\xa4", 4),
                   Json::object(),
                   Json::array()};
  for (int i = 0; i < 3; ++i) expect_same(Packed(value).unpack(), value);  // the table of words grows meanwhile
  expect_same(Packed().unpack(), Json());
  expect_same(Packed(Json()).unpack(), Json());
}

TEST(Packed, MoreWordsThanAreRememberedAreWrittenOut) {
  for (int i = 0; i < 6000; ++i) {
    const Json value{{"member-" + std::to_string(i), "value"}};
    ASSERT_EQ(Packed(value).unpack(), value);
  }
}

TEST(Packed, BinaryIsRefused) { EXPECT_THROW((void)Packed(Json::binary({1, 2})), std::invalid_argument); }

TEST(Packed, ThreadsPackAndReadAtOnce) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      for (int i = 0; i < 50; ++i) {
        const Json value = any(random, 2);
        ASSERT_EQ(Packed(value).unpack(), value);
      }
    });
  }
}
