// SPDX-License-Identifier: Apache-2.0
// Audio preprocessing: samples to a model's inputs, as the checkpoint's preprocessor_config.json says.
#pragma once
#include <filesystem>
#include <optional>
#include <span>

#include "worker/base/array.h"

namespace pm::audio {

/// What a model reads of audio.
enum class Features : uint8_t {
  Samples,      ///< Wav2Vec2FeatureExtractor
  FilterBanks,  ///< Speech2TextFeatureExtractor
  LogMel,       ///< WhisperFeatureExtractor: spectrograms of a fixed number of seconds
};

/// Transformers' feature extractors for one row of audio. A single row of samples or filter banks has no padding, so
/// its mask would be of ones, and is left out; models read spectrograms without one.
struct FeatureExtractor {
  Features features = Features::Samples;
  int64_t rate = 16'000;             ///< samples per second that the model expects
  int64_t bins = 0;                  ///< of filter banks and spectrograms
  int64_t frame = 400, hop = 160;    ///< samples, of filter banks and spectrograms
  int64_t window = 0;                ///< samples of a row of spectrograms
  bool do_normalize = true;          ///< samples: to mean 0 and variance 1
  bool do_ceptral_normalize = true;  ///< filter banks: over the frames of each bank, as the two flags below say
  bool normalize_means = true, normalize_vars = true;

  /// Reads preprocessor_config.json of a checkpoint folder, or the "feature_extractor" of processor_config.json;
  /// returns nothing when there is neither. Missing keys have the defaults of their class. Throws
  /// Error{ModelUnreadable} for another class or an unsupported value.
  static std::optional<FeatureExtractor> read(const std::filesystem::path& folder);

  /// Returns "input_values" [1, samples], or "input_features" [1, frames, bins] of filter banks, or [1, bins, frames]
  /// of a spectrogram of `window` samples: silence is appended, and what is beyond is left out, as transformers does.
  /// Throws Error{AudioRefused} for audio that is too short for a frame, or whose banks do not vary and so cannot be
  /// normalized.
  Arrays operator()(std::span<const float> samples) const;
};

}  // namespace pm::audio
