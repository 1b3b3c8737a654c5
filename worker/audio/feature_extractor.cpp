// SPDX-License-Identifier: Apache-2.0
// Parses preprocessor_config.json and preprocesses audio.
#include "worker/audio/feature_extractor.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/audio/audio_refusal.h"
#include "worker/audio/filter_banks.h"
#include "worker/audio/log_mel.h"

namespace pm::audio {
namespace {

using nlohmann::json;

constexpr int64_t most_bins = 1024, least_rate = 1000, most_rate = 384'000, most_frame = 1 << 16, most_seconds = 600;
constexpr double variance_floor = 1e-7;   // of samples, as in Wav2Vec2FeatureExtractor
constexpr double least_variance = 1e-10;  // of the logarithms of a bank that changes

Error unreadable(const std::string& file, const std::string& what) {
  return Error(Reason::ModelUnreadable, file + ": " + what);
}

/// Reads the fields of one file; errors name them.
struct Reader {
  const std::string& file;
  const json& config;

  const json* find(const char* key) const {
    const auto found = config.find(key);
    return found == config.end() || found->is_null() ? nullptr : &*found;
  }
  void flag(const char* key, bool& into) const {
    const auto* value = find(key);
    if (!value) return;
    if (!value->is_boolean())
      throw unreadable(file, std::string(key) + " is " + value->dump() + " instead of true or false");
    into = *value;
  }
  void number(const char* key, int64_t least, int64_t most, int64_t& into) const {
    const auto* value = find(key);
    if (!value) return;
    if (!value->is_number_integer() || *value < least || *value > most)
      throw unreadable(file, std::string(key) + " is " + value->dump() + " instead of a number from " +
                                 std::to_string(least) + " to " + std::to_string(most));
    into = *value;
  }
  void no_dither() const {
    if (const json* dither = find("dither"); dither && *dither != 0)
      throw unreadable(file, "dither is " + dither->dump() + "; random noise is not served, only 0");
  }
};

FeatureExtractor samples_of(const Reader& read) {
  FeatureExtractor made;
  int64_t width = 1;
  read.number("feature_size", 1, 1, width);
  read.flag("do_normalize", made.do_normalize);
  return made;
}

FeatureExtractor filter_banks_of(const Reader& read) {
  FeatureExtractor made{.features = Features::FilterBanks, .bins = 80};
  read.number("num_mel_bins", 1, most_bins, made.bins);
  read.flag("do_ceptral_normalize", made.do_ceptral_normalize);
  read.flag("normalize_means", made.normalize_means);
  read.flag("normalize_vars", made.normalize_vars);
  read.no_dither();
  return made;
}

FeatureExtractor log_mel_of(const Reader& read, int64_t rate) {
  FeatureExtractor made{.features = Features::LogMel, .bins = 80};
  int64_t seconds = 30;
  read.number("feature_size", 1, most_bins, made.bins);
  read.number("n_fft", 2, most_frame, made.frame);
  read.number("hop_length", 1, most_frame, made.hop);
  read.number("chunk_length", 1, most_seconds, seconds);
  made.window = seconds * rate;
  bool normalize = false;
  read.flag("do_normalize", normalize);
  if (normalize)
    throw unreadable(read.file,
                     "do_normalize is true; samples that are normalized before a spectrogram are not served");
  read.no_dither();
  return made;
}

FeatureExtractor extractor_of(const std::string& file, const json& config) {
  const Reader read{file, config};
  const json* type = read.find("feature_extractor_type");
  // older checkpoints do not name the class
  const std::string name = type && type->is_string()   ? type->get<std::string>()
                           : read.find("num_mel_bins") ? "Speech2TextFeatureExtractor"
                                                       : "Wav2Vec2FeatureExtractor";
  int64_t rate = 16'000;
  read.number("sampling_rate", least_rate, most_rate, rate);
  FeatureExtractor made;
  if (name == "Wav2Vec2FeatureExtractor")
    made = samples_of(read);
  else if (name == "Speech2TextFeatureExtractor")
    made = filter_banks_of(read);
  else if (name == "WhisperFeatureExtractor")
    made = log_mel_of(read, rate);
  else
    throw unreadable(file, "the feature extractor \"" + name +
                               "\" is not served; served are Wav2Vec2FeatureExtractor, Speech2TextFeatureExtractor "
                               "and WhisperFeatureExtractor");
  made.rate = rate;
  return made;
}

struct Moments {
  double mean = 0, variance = 0;
};

/// Returns the moments of every `step`-th value.
Moments moments(std::span<const float> values, size_t first, size_t step) {
  Moments of;
  const auto count = static_cast<double>((values.size() - first + step - 1) / step);
  for (size_t i = first; i < values.size(); i += step) of.mean += values[i];
  of.mean /= count;
  for (size_t i = first; i < values.size(); i += step) of.variance += (values[i] - of.mean) * (values[i] - of.mean);
  of.variance /= count;
  return of;
}

/// Normalizes each bank over the frames.
void normalize_banks(const FeatureExtractor& how, std::vector<float>& values) {
  const auto bins = static_cast<size_t>(how.bins);
  for (size_t b = 0; b < bins; ++b) {
    const Moments of = moments(values, b, bins);
    if (how.normalize_vars && of.variance < least_variance)
      throw refused("its spectrum does not change (" + std::to_string(values.size() / bins) +
                    " frames of silence, or one frame only), so it cannot be normalized");
    for (size_t i = b; i < values.size(); i += bins) {
      if (how.normalize_means) values[i] -= static_cast<float>(of.mean);
      if (how.normalize_vars) values[i] /= static_cast<float>(std::sqrt(of.variance));
    }
  }
}

}  // namespace

std::optional<FeatureExtractor> FeatureExtractor::read(const std::filesystem::path& folder) {
  const auto parsed = [](const std::filesystem::path& path) -> json {
    std::ifstream in(path, std::ios::binary);
    if (!in) return nullptr;
    json config = json::parse(in, nullptr, false);
    if (!config.is_object()) throw unreadable(path.string(), "is not a JSON object");
    return config;
  };
  const auto file = folder / "preprocessor_config.json", whole = folder / "processor_config.json";
  if (const json config = parsed(file); !config.is_null()) return extractor_of(file.string(), config);
  const json config = parsed(whole);
  if (config.is_null() || !config.contains("feature_extractor") || !config["feature_extractor"].is_object())
    return std::nullopt;
  return extractor_of(whole.string(), config["feature_extractor"]);
}

Arrays FeatureExtractor::operator()(std::span<const float> samples) const {
  const auto count = static_cast<int64_t>(samples.size());
  if (features == Features::Samples) {
    std::vector<float> values(samples.begin(), samples.end());
    if (do_normalize && !values.empty()) {
      const Moments of = moments(samples, 0, 1);
      const double deviation = std::sqrt(of.variance + variance_floor);
      for (float& value : values) value = static_cast<float>((value - of.mean) / deviation);
    }
    return {{"input_values", {{1, count}, std::move(values)}}};
  }
  if (features == Features::LogMel) {
    std::vector<float> row(samples.begin(), samples.begin() + std::min(count, window));
    row.resize(static_cast<size_t>(window));
    const LogMel spectrogram(bins, frame, hop, rate);
    return {{"input_features", {{1, bins, spectrogram.frames(window)}, spectrogram(row)}}};
  }
  const int64_t frames = FilterBanks::frames(count);
  if (frames == 0)
    throw refused("it has " + std::to_string(count) + " samples at " + std::to_string(rate) +
                  " per second; filter banks need at least " + std::to_string(FilterBanks::frame));
  std::vector<float> values = FilterBanks(bins, rate)(samples);
  if (do_ceptral_normalize) normalize_banks(*this, values);
  return {{"input_features", {{1, frames, bins}, std::move(values)}}};
}

}  // namespace pm::audio
