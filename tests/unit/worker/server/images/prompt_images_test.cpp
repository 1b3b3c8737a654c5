// SPDX-License-Identifier: Apache-2.0
// Tests the cache of what a tower has made of images.
#include "worker/server/images/prompt_images.h"

#include <gtest/gtest.h>

namespace pm::server {
namespace {

std::vector<float> rows(size_t bytes, float value = 0) { return std::vector<float>(bytes / sizeof(float), value); }

TEST(ImageRowCache, KeepsRowsUnderTheirDigestAndAKeyOfTheirOwn) {
  ImageRowCache cache;
  EXPECT_FALSE(cache.find("a").values);
  const ImageRowCache::Rows first = cache.keep("a", rows(8, 1)), second = cache.keep("b", rows(8, 2));
  EXPECT_LT(first.key, 0);
  EXPECT_NE(first.key, second.key);
  EXPECT_EQ(cache.find("a").key, first.key);
  EXPECT_EQ(*cache.find("b").values, rows(8, 2));
}

TEST(ImageRowCache, CountsWhatWasLookedUpAndFound) {
  ImageRowCache cache;
  cache.find("a");
  cache.keep("a", rows(8, 1));
  cache.find("a");
  cache.find("b");
  EXPECT_EQ(cache.counts().queries, 3);
  EXPECT_EQ(cache.counts().hits, 1);
}

TEST(ImageRowCache, OfTwoThatComputedTheSameTheFirstStays) {
  ImageRowCache cache;
  const ImageRowCache::Rows first = cache.keep("a", rows(8, 1)), again = cache.keep("a", rows(8, 3));
  EXPECT_EQ(again.key, first.key);
  EXPECT_EQ(again.values, first.values);
}

TEST(ImageRowCache, WhatWasUsedLeastRecentlyMakesRoom) {
  ImageRowCache cache(100);
  const int32_t key = cache.keep("a", rows(40)).key;
  cache.keep("b", rows(40));
  EXPECT_TRUE(cache.find("a").values);
  cache.keep("c", rows(40));
  EXPECT_FALSE(cache.find("b").values);
  EXPECT_EQ(cache.find("a").key, key);
  EXPECT_NE(cache.keep("b", rows(8)).key, key) << "no key is given twice";
}

TEST(ImageRowCache, RowsThatAreLargerThanTheCacheAreHandedOutAndNotKept) {
  ImageRowCache cache(100);
  cache.keep("a", rows(40));
  const ImageRowCache::Rows large = cache.keep("b", rows(400, 5));
  EXPECT_EQ(*large.values, rows(400, 5));
  EXPECT_FALSE(cache.find("b").values);
  EXPECT_TRUE(cache.find("a").values) << "nothing makes room in vain";
  EXPECT_NE(cache.keep("b", rows(400)).key, large.key);
}

}  // namespace
}  // namespace pm::server
