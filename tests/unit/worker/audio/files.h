// SPDX-License-Identifier: Apache-2.0
// Generates audio files with libsndfile's own writers, and by hand where those would refuse.
#pragma once
#include <sndfile.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pm::test {

/// Returns `count` samples of a tone of this frequency, half as loud as a file can be.
std::vector<float> tone(double hertz, int64_t rate, int64_t count);
/// Returns a file of a format such as SF_FORMAT_FLAC | SF_FORMAT_PCM_16. `samples` are interleaved.
std::string audio_file(const std::vector<float>& samples, int64_t rate, int channels, int format);

/// The header fields of a WAV of whole numbers, true or not.
struct WavHeader {
  uint16_t coding = 1, channels = 1;
  uint32_t rate = 16'000;
  uint16_t bits = 16;
};
/// Returns a WAV with this header and these bytes of data.
std::string wav(const WavHeader& header, const std::string& data);

}  // namespace pm::test
