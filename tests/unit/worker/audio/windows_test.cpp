// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/windows.h"

#include <gtest/gtest.h>

namespace pm::test {
namespace {

using audio::split_windows;
using audio::Window;

TEST(Windows, OneWindowHoldsAudioThatFits) {
  EXPECT_EQ(split_windows(100, {100, 10, 10}), (std::vector<Window>{{0, 100, 0, 0}}));
  EXPECT_EQ(split_windows(7, {100, 10, 10}), (std::vector<Window>{{0, 7, 0, 0}}));
  EXPECT_TRUE(split_windows(0, {100, 10, 10}).empty());
}

TEST(Windows, LongAudioIsDividedWithContextOnBothSides) {
  EXPECT_EQ(split_windows(250, {100, 10, 20}),
            (std::vector<Window>{{0, 100, 0, 20}, {70, 100, 10, 20}, {140, 100, 10, 20}, {210, 40, 10, 0}}));
}

TEST(Windows, FramesOfContextAreLeftOut) {
  const auto kept = [](const Window& window, int64_t frames) {
    const auto some = window.kept(frames, 10);
    return std::pair{some.first, some.end};
  };
  EXPECT_EQ(kept({0, 100, 0, 20}, 9), (std::pair<int64_t, int64_t>{0, 8}));
  EXPECT_EQ(kept({70, 100, 20, 20}, 9), (std::pair<int64_t, int64_t>{2, 8}));
  EXPECT_EQ(kept({210, 40, 10, 0}, 3), (std::pair<int64_t, int64_t>{1, 3}));  // fewer frames than samples promise
  EXPECT_EQ(kept({0, 5, 0, 0}, 1), (std::pair<int64_t, int64_t>{0, 0}));      // half a frame rounds to the even 0
}

TEST(Windows, SecondsAreRoundedToWholeFrames) {
  EXPECT_EQ(audio::aligned_samples(30, 16'000, 320), 480'000);
  EXPECT_EQ(audio::aligned_samples(0.03, 16'000, 320), 640);  // 1.5 frames round to the even 2
  EXPECT_EQ(audio::aligned_samples(0.05, 16'000, 320), 640);  // 2.5 frames too
}

}  // namespace
}  // namespace pm::test
