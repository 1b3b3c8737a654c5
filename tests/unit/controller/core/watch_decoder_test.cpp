// SPDX-License-Identifier: Apache-2.0
#include "controller/core/watch_decoder.h"

#include <gtest/gtest.h>

#include <vector>

using namespace pm::k8s;

namespace {

const std::string stream =
    R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"},"text":"caf\u00e9 \n newline inside a string"}})"
    "\n"
    R"({"type":"MODIFIED","object":{"metadata":{"name":"ü","resourceVersion":"2"}}})"
    "\r\n"
    "\n"
    R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3"}}})"
    "\n"
    R"({"type":"DELETED","object":{"metadata":{"name":"a"}}})"
    "\n"
    R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
    "\n";

std::vector<WatchEvent> decode(const std::vector<std::string>& chunks) {
  std::vector<WatchEvent> events;
  WatchDecoder decoder;
  for (const auto& chunk : chunks) {
    EXPECT_TRUE(decoder.feed(chunk, [&](WatchEvent&& event) {
      events.push_back(std::move(event));
      return true;
    })) << decoder.error();
  }
  EXPECT_FALSE(decoder.partial());
  return events;
}

}  // namespace

TEST(WatchDecoder, DecodesEveryKindOfEvent) {
  const auto events = decode({stream});
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].type, WatchEvent::Type::Added);
  EXPECT_EQ(events[1].object["metadata"]["name"], "ü");
  EXPECT_EQ(events[2].type, WatchEvent::Type::Bookmark);
  EXPECT_EQ(events[3].type, WatchEvent::Type::Deleted);
  EXPECT_EQ(events[4].object["code"], 410);
}

TEST(WatchDecoder, CutsAtAnyTwoOffsetsChangeNothing) {
  const auto expected = decode({stream});
  for (size_t i = 0; i <= stream.size(); ++i) {
    ASSERT_EQ(decode({stream.substr(0, i), stream.substr(i)}), expected) << i;
    for (size_t j = i; j <= stream.size(); j += 7) {
      ASSERT_EQ(decode({stream.substr(0, i), stream.substr(i, j - i), stream.substr(j)}), expected) << i << " " << j;
    }
  }
  std::vector<std::string> bytes;
  for (char c : stream) bytes.emplace_back(1, c);
  EXPECT_EQ(decode(bytes), expected);
}

TEST(WatchDecoder, AnUnfinishedLineIsSeen) {
  WatchDecoder decoder;
  EXPECT_TRUE(decoder.feed(R"({"type":"ADD)", [](WatchEvent&&) { return true; }));
  EXPECT_TRUE(decoder.partial());
}

TEST(WatchDecoder, ALineBeyondTheBoundFailsInsteadOfGrowing) {
  for (const std::string& tail : {std::string(), std::string("\n")}) {
    WatchDecoder decoder(64);
    EXPECT_FALSE(decoder.feed(std::string(65, ' ') + tail, [](WatchEvent&&) { return true; }));
    EXPECT_NE(decoder.error().find("64"), std::string::npos);
    EXPECT_FALSE(decoder.feed("\n", [](WatchEvent&&) { return true; }));
  }
}

TEST(WatchDecoder, WhatIsNoEventFailsAndNamesIt) {
  for (const char* line : {"<html>", "{}", R"({"type":"ADDED"})", R"({"type":"NEW","object":{}})",
                           R"({"type":1,"object":{}})", R"({"type":"ADDED","object":[]})"}) {
    WatchDecoder decoder;
    EXPECT_FALSE(decoder.feed(std::string(line) + "\n", [](WatchEvent&&) { return true; })) << line;
    EXPECT_NE(decoder.error().find(line), std::string::npos);
  }
}

TEST(WatchDecoder, ASinkThatHadEnoughStopsTheFeed) {
  WatchDecoder decoder;
  int seen = 0;
  EXPECT_FALSE(decoder.feed(stream, [&](WatchEvent&&) { return ++seen < 2; }));
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(decoder.error(), "");
}
