// SPDX-License-Identifier: Apache-2.0
// Audio files: what is read is finite and within the limits, what is not is refused with a reason. The first byte says
// whether the rest is a file, or samples that are encoded first (FLAC, Vorbis, Opus, MP3) and then damaged: a fuzzer
// would never find the checksums of such a file. Then come a count of damaged bytes and for each its place and value.
#include <cmath>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/audio/files.h"
#include "worker/audio/audio.h"
#include "worker/audio/feature_extractor.h"
#include "worker/audio/windows.h"

namespace {

using namespace pm;

constexpr int64_t rate = 8000;
constexpr audio::Limits limits{.seconds = 5};

std::string file_of(const uint8_t* data, size_t size) {
  static constexpr int formats[] = {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, SF_FORMAT_OGG | SF_FORMAT_VORBIS,
                                    SF_FORMAT_OGG | SF_FORMAT_OPUS, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III};
  const size_t kind = data[0] % 8U, edits = data[1] % 16U;
  data += 2;
  size -= 2;
  if (kind >= std::size(formats) || size < 3 * edits) return fuzz::text(data, size);
  std::vector<float> samples;
  for (size_t i = 3 * edits; i < size; ++i) samples.push_back((static_cast<float>(data[i]) - 128) / 128);
  std::string file = test::audio_file(samples, rate, 1, formats[kind]);
  for (size_t e = 0; e < edits && !file.empty(); ++e)
    file[(data[3 * e] | data[3 * e + 1] << 8) % file.size()] = static_cast<char>(data[3 * e + 2]);
  return file;
}

}  // namespace

/// libsndfile 1.2 does not free libvorbis' 5.8 KB of an OGG file whose headers are damaged; any other leak is a
/// finding.
extern "C" const char* __lsan_default_suppressions() { return "leak:vorbis_info_init\n"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  try {
    const std::vector<float> samples = audio::open(file_of(data, size), rate, limits);
    fuzz::hold(!samples.empty() || size < 64, "no samples of a file that is read");
    fuzz::hold(samples.size() <= static_cast<size_t>((limits.seconds + 1) * rate), "more samples than the limit");
    for (const float sample : samples) fuzz::hold(std::isfinite(sample), "a sample that is not a number");
    for (const auto& window : audio::split_windows(static_cast<int64_t>(samples.size()), {800, 100, 100}))
      fuzz::hold(window.first + window.length <= static_cast<int64_t>(samples.size()), "a window leaves the audio");
    (void)audio::FeatureExtractor{.features = audio::Features::FilterBanks, .rate = rate, .bins = 20}(samples);
    const audio::FeatureExtractor spectrogram{
        .features = audio::Features::LogMel, .rate = rate, .bins = 20, .window = 2 * rate};
    const Arrays inputs = spectrogram(samples);
    for (const float value : std::get<std::vector<float>>(inputs.at("input_features").values))
      fuzz::hold(std::isfinite(value), "a value of a spectrogram that is not a number");
  } catch (const Error& error) {
    fuzz::hold(error.reason == Reason::AudioRefused || error.reason == Reason::AudioTooLarge, error.what());
  }
  return 0;
}
