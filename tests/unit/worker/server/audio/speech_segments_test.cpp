// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/speech_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm::test {
namespace {

using server::AnsweredWindow;
using server::split_segments;
using testing::ElementsAre;
using Segment = server::SpeechSegment;

constexpr int32_t zero = 100;  // the token of the time 0; smaller ids are text
constexpr int64_t frames = 3000, stride = 2;

AnsweredWindow split(const std::vector<int32_t>& tokens, int64_t length = frames) {
  return split_segments(tokens, zero, length, stride);
}

TEST(SpeechSegments, TwoTimesInARowEndOneAndBeginTheNext) {
  const auto answered = split({100, 1, 2, 150, 150, 3, 180, 190});
  EXPECT_THAT(answered.segments, ElementsAre(Segment{0, 50, {100, 1, 2, 150}}, Segment{50, 80, {150, 3, 180}}));
  EXPECT_EQ(answered.frames, 80 * stride);  // the next window begins at the end of the last segment
}

TEST(SpeechSegments, WhatFollowsTheLastPairBelongsToTheNextWindow) {
  const auto answered = split({100, 1, 150, 160, 5, 6});
  EXPECT_THAT(answered.segments, ElementsAre(Segment{0, 50, {100, 1, 150}}));
  EXPECT_EQ(answered.frames, 50 * stride);
}

TEST(SpeechSegments, BehindASingleTimeThereIsNoSpeech) {
  const auto answered = split({100, 1, 150, 150, 2, 170});
  EXPECT_THAT(answered.segments, ElementsAre(Segment{0, 50, {100, 1, 150}}, Segment{50, 70, {150, 2, 170}}));
  EXPECT_EQ(answered.frames, frames);
}

TEST(SpeechSegments, WithoutAPairTheWindowIsOneSegment) {
  EXPECT_THAT(split({100, 1, 2, 130}).segments, ElementsAre(Segment{0, 30, {100, 1, 2, 130}}));
  EXPECT_THAT(split({1, 2}, 700).segments, ElementsAre(Segment{0, 350, {1, 2}}));
  EXPECT_THAT(split({100, 1}, 700).segments, ElementsAre(Segment{0, 350, {100, 1}}));
  EXPECT_THAT(split({}, 700).segments, ElementsAre(Segment{0, 350, {}}));
  EXPECT_EQ(split({1, 2}, 700).frames, 700);
}

TEST(SpeechSegments, AWindowAnswersForSomething) {
  EXPECT_EQ(split({100, 100, 5}).frames, frames);
  EXPECT_EQ(split({100, 1, 900, 900, 2}, 700).frames, 700);  // a time beyond the audio
}

}  // namespace
}  // namespace pm::test
