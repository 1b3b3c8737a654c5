// SPDX-License-Identifier: Apache-2.0
// Audio in memory, and its decoding from WAV, FLAC, OGG and MP3 to one channel at a model's rate.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace pm::audio {

/// Limits that are checked while a file is decoded, before more of it is allocated.
struct Limits {
  int64_t seconds = 1800;     ///< of one file; at 16 kHz this is 115 MB of samples
  int64_t channels = 2;       ///< transformers' pipelines mix one or two and leave more to the user
  int64_t least_rate = 1000;  ///< samples per second
  int64_t most_rate = 384'000;
};

/// Decodes a file to samples of -1 to 1 at `rate` per second. The first bytes decide the format: WAV (whole numbers
/// of 8, 16, 24 and 32 bits, floating point, A-law, mu-law), FLAC, OGG (Vorbis, Opus) and MPEG audio. Two channels
/// become their mean, as in transformers' pipelines. Another rate is converted with soxr's high quality; the result has
/// `seconds * rate` samples, rounded. Decoding and conversion go block by block, so beside the result only a few blocks
/// are in memory. Throws Error{AudioRefused} for another format, a damaged file, no samples, too many channels or a
/// rate beyond the limits, Error{AudioTooLarge} for too many seconds.
std::vector<float> open(std::string_view file, int64_t rate, const Limits& limits = {});

}  // namespace pm::audio
