// SPDX-License-Identifier: Apache-2.0
// Values are compared with transformers in tests/parity/test_audio_files.py.
#include "worker/audio/feature_extractor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/unit/worker/audio/files.h"
#include "worker/audio/filter_banks.h"
#include "worker/audio/log_mel.h"
#include "worker/base/error.h"

namespace pm::test {
namespace {

using audio::FeatureExtractor;
using audio::Features;
using testing::HasSubstr;

struct Folder : testing::Test {
  Folder() : path(std::filesystem::temp_directory_path() / ("audio-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() override { std::filesystem::remove_all(path); }
  std::optional<FeatureExtractor> read(const std::string& config, const char* name = "preprocessor_config.json") {
    std::ofstream(path / name) << config;
    return FeatureExtractor::read(path);
  }
  std::string refusal(const std::string& config) {
    try {
      read(config);
    } catch (const Error& error) {
      return std::string(name_of(error.reason)) + ": " + error.what();
    }
    return "nothing was refused";
  }
  std::filesystem::path path;
};

TEST_F(Folder, WithoutAFileThereIsNoExtractor) { EXPECT_FALSE(FeatureExtractor::read(path)); }

TEST_F(Folder, ClassesAndDefaultsAreThoseOfTransformers) {
  const auto samples = read(R"({"feature_extractor_type": "Wav2Vec2FeatureExtractor"})");
  EXPECT_EQ(std::tuple(samples->rate, samples->bins, samples->do_normalize), std::tuple(16'000, 0, true));
  const auto banks = read(R"({"feature_extractor_type": "Speech2TextFeatureExtractor", "sampling_rate": 8000})");
  EXPECT_EQ(std::tuple(banks->rate, banks->bins, banks->do_ceptral_normalize), std::tuple(8000, 80, true));
  EXPECT_EQ(read(R"({"num_mel_bins": 40, "normalize_vars": false})")->bins, 40);
  EXPECT_FALSE(read(R"({"do_normalize": false})")->do_normalize);
  const auto mels = read(R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128})");
  EXPECT_EQ(std::tuple(mels->features, mels->bins, mels->frame, mels->hop, mels->window),
            std::tuple(Features::LogMel, 128, 400, 160, 480'000));
}

TEST_F(Folder, AProcessorsFileHoldsTheExtractor) {
  const auto made = read(R"({"feature_extractor": {"sampling_rate": 24000}})", "processor_config.json");
  EXPECT_EQ(made->rate, 24'000);
}

TEST_F(Folder, WhatIsNotServedIsRefusedByName) {
  EXPECT_THAT(refusal(R"({"feature_extractor_type": "ClapFeatureExtractor"})"),
              testing::AllOf(HasSubstr("ModelUnreadable"), HasSubstr("ClapFeatureExtractor")));
  const std::string mels = R"({"feature_extractor_type": "WhisperFeatureExtractor", )";
  EXPECT_THAT(refusal(mels + R"("do_normalize": true})"), HasSubstr("do_normalize is true"));
  EXPECT_THAT(refusal(mels + R"("dither": 0.1})"), HasSubstr("dither is 0.1"));
  EXPECT_THAT(refusal(mels + R"("chunk_length": 0})"), HasSubstr("chunk_length is 0"));
  EXPECT_THAT(refusal(R"({"num_mel_bins": 80, "dither": 1.0})"), HasSubstr("dither is 1.0"));
  EXPECT_THAT(refusal(R"({"feature_size": 2})"), HasSubstr("feature_size is 2"));
  EXPECT_THAT(refusal(R"({"sampling_rate": "fast"})"), HasSubstr("sampling_rate is \"fast\""));
  EXPECT_THAT(refusal(R"({"do_normalize": 1})"), HasSubstr("do_normalize is 1"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
}

TEST(FeatureExtractorValues, SamplesGetMeanZeroAndVarianceOne) {
  const auto inputs = FeatureExtractor{}(tone(440, 16'000, 1600));
  const auto& array = inputs.at("input_values");
  EXPECT_EQ(array.shape, (std::vector<int64_t>{1, 1600}));
  const auto& values = std::get<std::vector<float>>(array.values);
  double squares = 0;
  for (float value : values) squares += value * value;
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / 1600, 0, 1e-6);
  EXPECT_NEAR(squares / 1600, 1, 1e-5);
}

TEST(FeatureExtractorValues, ATonesBankIsTheLoudest) {
  const audio::FilterBanks banks(20, 16'000);
  EXPECT_EQ(audio::FilterBanks::frames(399), 0);
  EXPECT_EQ(audio::FilterBanks::frames(400 + 160), 2);
  const auto loudest = [&](double hertz) {
    const auto values = banks(tone(hertz, 16'000, 400));
    return std::max_element(values.begin(), values.end()) - values.begin();
  };
  EXPECT_LT(loudest(300), loudest(1000));
  EXPECT_LT(loudest(1000), loudest(4000));
}

TEST(FeatureExtractorValues, ASpectrogramHasTheLengthOfItsWindow) {
  const FeatureExtractor mels{.features = Features::LogMel, .bins = 20, .window = 8000};
  for (const size_t samples : {1, 8000, 20'000}) {
    const auto inputs = mels(tone(440, 16'000, static_cast<int64_t>(samples)));
    EXPECT_EQ(inputs.at("input_features").shape, (std::vector<int64_t>{1, 20, 50})) << samples;
  }
  const audio::LogMel spectrogram(20, 400, 160, 16'000);
  EXPECT_EQ(spectrogram(tone(440, 16'000, 1700)).size(), 20u * 10);
  EXPECT_THROW(spectrogram(std::vector<float>(200)), Error);
  // as transformers has it, what is quiet is 8 below the loudest
  const auto values = spectrogram(tone(440, 16'000, 16'000));
  EXPECT_NEAR(*std::max_element(values.begin(), values.end()) - *std::min_element(values.begin(), values.end()), 2,
              1e-6);
}

TEST(FeatureExtractorValues, AudioWithoutBanksToNormalizeIsRefused) {
  const FeatureExtractor banks{.features = Features::FilterBanks, .bins = 20};
  EXPECT_THROW(banks(std::vector<float>(399)), Error);
  EXPECT_THROW(banks(std::vector<float>(4000)), Error);  // silence
  EXPECT_THROW(banks(tone(440, 16'000, 400)), Error);    // one frame
  EXPECT_NO_THROW((FeatureExtractor{
      .features = Features::FilterBanks, .bins = 20, .do_ceptral_normalize = false}(std::vector<float>(4000))));
}

}  // namespace
}  // namespace pm::test
