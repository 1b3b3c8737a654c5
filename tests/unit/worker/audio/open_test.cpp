// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/worker/audio/files.h"
#include "worker/audio/audio.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

using audio::open;
using testing::AllOf;
using testing::Each;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr int64_t rate = 16'000;

std::string refusal(const std::string& file, const audio::Limits& limits = {}) {
  try {
    open(file, rate, limits);
  } catch (const Error& error) {
    return std::string(name_of(error.reason)) + ": " + error.what();
  }
  return "nothing was refused";
}

/// The largest difference of two signals, beside `edge` samples at both ends.
float difference(const std::vector<float>& a, const std::vector<float>& b, size_t edge) {
  float most = 0;
  for (size_t i = edge; i + edge < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(OpenAudio, WholeNumbersOfEverySampleWidthAreReadExactlyWithinTheirStep) {
  const auto samples = tone(440, rate, 1000);
  for (const auto& [coding, step] : {std::pair{SF_FORMAT_PCM_U8, 1 / 127.F},
                                     {SF_FORMAT_PCM_16, 1 / 32767.F},
                                     {SF_FORMAT_PCM_24, 1e-6F},
                                     {SF_FORMAT_PCM_32, 1e-6F},
                                     {SF_FORMAT_FLOAT, 0.F},
                                     {SF_FORMAT_DOUBLE, 0.F},
                                     {SF_FORMAT_ULAW, 0.03F},
                                     {SF_FORMAT_ALAW, 0.03F}}) {
    const auto read = open(audio_file(samples, rate, 1, SF_FORMAT_WAV | coding), rate);
    EXPECT_THAT(read, Pointwise(FloatNear(step), samples)) << coding;
  }
  EXPECT_EQ(open(wav({}, std::string("\x00\x40\x00\x80", 4)), rate), (std::vector<float>{0.5, -1}));
}

TEST(OpenAudio, FlacOggAndMp3GiveTheSameSound) {
  const auto samples = tone(440, rate, 2 * rate);
  EXPECT_THAT(open(audio_file(samples, rate, 1, SF_FORMAT_FLAC | SF_FORMAT_PCM_24), rate),
              Pointwise(FloatNear(1e-6F), samples));
  for (const int format : {SF_FORMAT_OGG | SF_FORMAT_VORBIS, SF_FORMAT_OGG | SF_FORMAT_OPUS}) {
    const auto read = open(audio_file(samples, rate, 1, format), rate);
    EXPECT_NEAR(static_cast<double>(read.size()), static_cast<double>(samples.size()), 1000) << format;
    EXPECT_LT(difference(read, samples, 4000), 0.05) << format;
  }
  const auto mp3 = open(audio_file(samples, rate, 1, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III), rate);
  EXPECT_NEAR(static_cast<double>(mp3.size()), static_cast<double>(samples.size()), 2500);
  EXPECT_NEAR(*std::max_element(mp3.begin() + 8000, mp3.end() - 8000), 0.5, 0.05);
}

TEST(OpenAudio, TwoChannelsBecomeTheirMean) {
  const std::vector<float> both{0.5, 0.25, -0.5, 0.5, 0, -1};
  EXPECT_EQ(open(audio_file(both, rate, 2, SF_FORMAT_WAV | SF_FORMAT_FLOAT), rate),
            (std::vector<float>{0.375, 0, -0.5}));
}

TEST(OpenAudio, AnotherRateIsConvertedAndKeepsTheTone) {
  for (const int64_t from : {8'000, 11'025, 22'050, 44'100, 48'000, 96'000}) {
    const auto read = open(audio_file(tone(440, from, 2 * from), from, 1, SF_FORMAT_WAV | SF_FORMAT_FLOAT), rate);
    EXPECT_NEAR(static_cast<double>(read.size()), 2.0 * rate, 1) << from;
    EXPECT_LT(difference(read, tone(440, rate, 2 * rate), 400), 1e-3) << from;
  }
}

TEST(OpenAudio, FrequenciesAboveTheNewRateAreRemoved) {
  const auto read = open(audio_file(tone(12'000, 48'000, 48'000), 48'000, 1, SF_FORMAT_WAV | SF_FORMAT_FLOAT), rate);
  EXPECT_THAT(std::vector<float>(read.begin() + 400, read.end() - 400), Each(testing::FloatNear(0, 1e-3F)));
}

TEST(OpenAudio, AFileOfAnotherFormatIsRefused) {
  for (const std::string file : {"", "GIF89a", "RIFF\0\0\0\0AVI LIST", "<html>"})
    EXPECT_THAT(refusal(file), AllOf(HasSubstr("AudioRefused"), HasSubstr("WAV, FLAC, OGG or MP3"))) << file;
  EXPECT_THAT(refusal(audio_file(tone(440, rate, 2000), rate, 1, SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM)),
              AllOf(HasSubstr("AudioRefused"), HasSubstr("IMA ADPCM"), HasSubstr("supported are")));
}

TEST(OpenAudio, WhatIsWrongWithTheHeaderIsNamed) {
  const std::string data(9600, '\1');
  EXPECT_THAT(refusal(wav({.channels = 48}, data)), AllOf(HasSubstr("AudioRefused"), HasSubstr("48 channels")));
  EXPECT_THAT(refusal(wav({.rate = 500}, data)), HasSubstr("500 samples per second; allowed are 1000 to 384000"));
  EXPECT_THAT(refusal(wav({.rate = 4'000'000}, data)), HasSubstr("4000000 samples per second"));
  EXPECT_THAT(refusal(wav({.bits = 40}, data)), HasSubstr("AudioRefused"));
  EXPECT_THAT(refusal(wav({.bits = 0}, data)), HasSubstr("AudioRefused"));
  EXPECT_THAT(refusal(wav({.channels = 0}, data)), HasSubstr("AudioRefused"));
}

TEST(OpenAudio, NoSoundIsRefused) {
  EXPECT_THAT(refusal(wav({}, "")), AllOf(HasSubstr("AudioRefused"), HasSubstr("0 s")));
}

TEST(OpenAudio, TooManySecondsAreRefusedByTheHeaderAndByTheData) {
  const std::string hours =
      audio_file(std::vector<float>(10 * 3600 * 1000), 1000, 1, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  EXPECT_LT(hours.size(), 1 << 20);
  EXPECT_THAT(refusal(hours), AllOf(HasSubstr("AudioTooLarge"), HasSubstr("36000 s"), HasSubstr("1800 s")));
  const std::string mp3 = audio_file(tone(440, rate, 5 * rate), rate, 1, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III);
  EXPECT_THAT(refusal(mp3, {.seconds = 4}), AllOf(HasSubstr("AudioTooLarge"), HasSubstr("at most 4 s")));
}

TEST(OpenAudio, SamplesThatAreNoNumbersAreRefused) {
  auto samples = tone(440, rate, 100);
  samples[50] = std::nanf("");
  EXPECT_THAT(refusal(audio_file(samples, rate, 1, SF_FORMAT_WAV | SF_FORMAT_FLOAT)), HasSubstr("not numbers"));
}

TEST(OpenAudio, TruncatedAndDamagedFilesAreReadOrRefusedButNeverMore) {
  std::mt19937 random(7);
  const auto samples = tone(440, rate, rate);
  for (const int format :
       {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, SF_FORMAT_OGG | SF_FORMAT_VORBIS,
        SF_FORMAT_OGG | SF_FORMAT_OPUS, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III}) {
    const std::string file = audio_file(samples, rate, 1, format);
    for (size_t n = 1; n < file.size(); n = n * 5 / 4 + 1) {
      std::string damaged = file.substr(0, n);
      damaged[random() % n] = static_cast<char>(random());
      const std::string said = refusal(damaged);
      EXPECT_TRUE(said == "nothing was refused" || said.starts_with("Audio")) << said;
    }
  }
  const std::string flac = audio_file(samples, rate, 1, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  EXPECT_THAT(refusal(flac.substr(0, 60)), HasSubstr("AudioRefused"));
}

}  // namespace
}  // namespace pm::test
