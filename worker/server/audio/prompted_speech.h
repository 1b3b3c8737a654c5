// SPDX-License-Identifier: Apache-2.0
// Transcribes and translates speech with a decoder whose prompt has tokens for language, task and timestamps.
#pragma once
#include <optional>

#include "worker/server/audio/speech_writer.h"
#include "worker/server/audio/transcription_reply.h"

namespace pm::server {

/// The options of a request to such a model.
struct SpeechTask {
  std::string task;      ///< "transcribe" or "translate", to English
  std::string language;  ///< code; empty: it is recognized in the first window
  std::string prompt;    ///< text that went before the audio, for a model that reads it
  bool times = false;    ///< segments with times; without them the audio fits into one window
  WritingOptions writing;
};

/// Reads the language of a request by its code or English name. Throws ApiError 400 for a language that the model does
/// not know.
std::string read_speech_language(const SpeechTokens&, const std::string& given);

/// Transcribes audio. Without times the audio becomes one window of the extractor's length, as transformers' pipeline
/// has it. With times a window begins where the segments of the one before end, and what a window lacks are zeros in
/// its spectrogram, as for transformers' generate with return_timestamps and features that are not padded. Returns
/// nothing when the client is gone. Throws ApiError as audio_inputs and write_speech.
std::optional<Transcript> transcribe_prompted(const ServerContext&, const RoutedRequest&, const SpeechTask&,
                                              std::span<const float> samples, const std::string& field,
                                              const std::shared_ptr<void>& admitted);

}  // namespace pm::server
