// SPDX-License-Identifier: Apache-2.0
// Audio preprocessing: samples to a model's inputs, as the checkpoint's preprocessor_config.json says.
#pragma once
#include <filesystem>
#include <optional>
#include <span>

#include "worker/base/array.h"

namespace pm::audio {

/// Transformers' Wav2Vec2FeatureExtractor (samples) and Speech2TextFeatureExtractor (filter banks), for one row of
/// audio. A single row has no padding, so both give the model a mask of ones, which is left out.
struct FeatureExtractor {
  int64_t rate = 16'000;             ///< samples per second that the model expects
  int64_t bins = 0;                  ///< filter banks; 0: the input is samples
  bool do_normalize = true;          ///< samples: to mean 0 and variance 1
  bool do_ceptral_normalize = true;  ///< filter banks: over the frames of each bank, as the two flags below say
  bool normalize_means = true, normalize_vars = true;

  /// Reads preprocessor_config.json of a checkpoint folder, or the "feature_extractor" of processor_config.json;
  /// returns nothing when there is neither. Missing keys have the defaults of their class. Throws
  /// Error{ModelUnreadable} for another class or an unsupported value.
  static std::optional<FeatureExtractor> read(const std::filesystem::path& folder);

  /// Returns "input_values" [1, samples] or "input_features" [1, frames, bins]. Throws Error{AudioRefused} for audio
  /// that is too short for a frame, or whose banks do not vary and so cannot be normalized.
  Arrays operator()(std::span<const float> samples) const;
};

}  // namespace pm::audio
