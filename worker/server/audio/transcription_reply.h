// SPDX-License-Identifier: Apache-2.0
// The replies of a transcription: json, text, verbose_json, srt and vtt.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "worker/server/http/http.h"
#include "worker/server/http/operation.h"

namespace pm::server {

/// A word or a segment; times are in seconds.
struct TimedText {
  std::string text;
  double start = 0, end = 0;
  std::vector<int64_t> tokens;  ///< of a segment
  std::optional<double> mean_logprob = {};
};

struct Transcript {
  std::string text, language;
  std::string task = "transcribe";
  double temperature = 0;
  double duration = 0;  ///< seconds of audio
  std::vector<TimedText> words, segments;
};

inline const std::vector<std::string> transcript_formats{"json", "text", "verbose_json", "srt", "vtt"};

/// What a reply in "verbose_json" has beside the text.
struct Granularities {
  bool words = false, segments = true;
};

/// Writes a transcript in one of transcript_formats.
http::Response transcript_response(const Transcript&, const std::string& format, const Granularities&);
/// The schema of json and verbose_json.
nlohmann::json transcript_schema();

}  // namespace pm::server
