// SPDX-License-Identifier: Apache-2.0
// Decodes an audio file by libsndfile from memory.
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "worker/audio/audio.h"
#include "worker/audio/audio_refusal.h"
#include "worker/audio/resampler.h"

namespace pm::audio {
namespace {

using namespace std::string_view_literals;

constexpr int64_t block = 4096;  ///< frames

/// A file in memory, as libsndfile reads it.
struct Memory {
  std::string_view file;
  sf_count_t place = 0;
  sf_count_t size() const { return static_cast<sf_count_t>(file.size()); }
};

sf_count_t length(void* memory) { return static_cast<Memory*>(memory)->size(); }

sf_count_t seek(sf_count_t offset, int whence, void* data) {
  auto& memory = *static_cast<Memory*>(data);
  const sf_count_t start = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? memory.place : memory.size();
  memory.place = std::clamp<sf_count_t>(start + std::clamp(offset, -memory.size(), memory.size()), 0, memory.size());
  return memory.place;
}

sf_count_t read(void* into, sf_count_t count, void* data) {
  auto& memory = *static_cast<Memory*>(data);
  count = std::clamp<sf_count_t>(count, 0, memory.size() - memory.place);
  std::memcpy(into, memory.file.data() + memory.place, static_cast<size_t>(count));
  memory.place += count;
  return count;
}

sf_count_t write(const void*, sf_count_t, void*) { return 0; }  // files are only read
sf_count_t tell(void* data) { return static_cast<Memory*>(data)->place; }

/// libsndfile reads twenty formats; only these four, recognised by their first bytes, reach it.
bool is_known_format(std::string_view file) {
  if (file.starts_with("RIFF"sv)) return file.size() >= 12 && file.substr(8, 4) == "WAVE"sv;
  if (file.starts_with("fLaC"sv) || file.starts_with("OggS"sv) || file.starts_with("ID3"sv)) return true;
  return file.size() > 2 && file[0] == '\xff' && (static_cast<uint8_t>(file[1]) & 0xE0) == 0xE0;  // a frame of MPEG
}

bool is_known_encoding(int format) {
  const int coding = format & SF_FORMAT_SUBMASK;
  switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
    case SF_FORMAT_WAVEX:
      return coding == SF_FORMAT_PCM_U8 || coding == SF_FORMAT_PCM_16 || coding == SF_FORMAT_PCM_24 ||
             coding == SF_FORMAT_PCM_32 || coding == SF_FORMAT_FLOAT || coding == SF_FORMAT_DOUBLE ||
             coding == SF_FORMAT_ULAW || coding == SF_FORMAT_ALAW;
    case SF_FORMAT_OGG:
      return coding == SF_FORMAT_VORBIS || coding == SF_FORMAT_OPUS;
    case SF_FORMAT_FLAC:
    case SF_FORMAT_MPEG:
      return true;
    default:
      return false;
  }
}

/// Returns what libsndfile calls the encoding, such as "IMA ADPCM".
std::string encoding_name(int format) {
  SF_FORMAT_INFO info{};
  info.format = format & SF_FORMAT_SUBMASK;
  const bool known = sf_command(nullptr, SFC_GET_FORMAT_INFO, &info, sizeof info) == 0 && info.name;
  return known ? info.name : "number " + std::to_string(format & SF_FORMAT_SUBMASK);
}

Error too_long(const std::string& seconds, const Limits& limits) {
  return Error(Reason::AudioTooLarge, "the audio has " + seconds + " s; at most " + std::to_string(limits.seconds) +
                                          " s are allowed, split it into several files");
}

void check(const SF_INFO& info, const Limits& limits) {
  if (!is_known_encoding(info.format))
    throw refused(
        "its encoding is " + encoding_name(info.format) +
        "; supported are WAV of 8, 16, 24 or 32 bits, floating point, A-law or mu-law, and FLAC, OGG (Vorbis, "
        "Opus) and MP3");
  if (info.channels < 1 || info.channels > limits.channels)
    throw refused("it has " + std::to_string(info.channels) + " channels; at most " + std::to_string(limits.channels) +
                  " are mixed, mix it to one");
  if (info.samplerate < limits.least_rate || info.samplerate > limits.most_rate)
    throw refused("it has " + std::to_string(info.samplerate) + " samples per second; allowed are " +
                  std::to_string(limits.least_rate) + " to " + std::to_string(limits.most_rate));
  // MPEG's length is estimated; libsndfile gives the largest number where it is unknown
  if (info.frames < SF_COUNT_MAX / 2 && info.frames / info.samplerate > limits.seconds)
    throw too_long(std::to_string(info.frames / info.samplerate), limits);
}

}  // namespace

std::vector<float> open(std::string_view file, int64_t rate, const Limits& limits) {
  if (!is_known_format(file))
    throw refused("its first bytes are not those of WAV, FLAC, OGG or MP3; convert it to one of these");
  Memory memory{file};
  SF_VIRTUAL_IO io{length, seek, read, write, tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> source(sf_open_virtual(&io, SFM_READ, &info, &memory), sf_close);
  if (!source) throw refused(sf_strerror(nullptr));
  check(info, limits);
  Resampler resampler(info.samplerate, rate);
  std::vector<float> samples, interleaved(static_cast<size_t>(block * info.channels)), mixed(block);
  int64_t frames = 0;
  for (;;) {
    const sf_count_t count = sf_readf_float(source.get(), interleaved.data(), block);
    if (count <= 0) break;
    frames += count;
    if (frames > limits.seconds * info.samplerate)
      throw too_long("more than " + std::to_string(limits.seconds), limits);
    for (int64_t i = 0; i < count; ++i) {
      const float* frame = interleaved.data() + i * info.channels;
      mixed[static_cast<size_t>(i)] = info.channels == 1 ? frame[0] : (frame[0] + frame[1]) / 2;
    }
    resampler.push(std::span(mixed).first(static_cast<size_t>(count)), samples);
  }
  if (const int error = sf_error(source.get()); error != SF_ERR_NO_ERROR)
    throw refused("it is damaged after " + std::to_string(frames) + " samples: " + sf_error_number(error));
  if (frames == 0) throw refused("it has 0 s of sound; at least one sample is needed");
  resampler.flush(samples);
  const auto finite = [](float sample) { return std::isfinite(sample); };
  if (!std::all_of(samples.begin(), samples.end(), finite))
    throw refused("it has samples that are not numbers (NaN or infinity)");
  return samples;
}

}  // namespace pm::audio
