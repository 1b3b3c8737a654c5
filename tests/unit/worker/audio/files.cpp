// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/audio/files.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>

namespace pm::test {
namespace {

struct Written {
  std::string file;
  size_t place = 0;
};

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::vector<float> tone(double hertz, int64_t rate, int64_t count) {
  std::vector<float> samples;
  for (int64_t i = 0; i < count; ++i) {
    const double seconds = static_cast<double>(i) / static_cast<double>(rate);
    samples.push_back(static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hertz * seconds)));
  }
  return samples;
}

std::string audio_file(const std::vector<float>& samples, int64_t rate, int channels, int format) {
  Written written;
  SF_VIRTUAL_IO io{[](void* data) { return static_cast<sf_count_t>(static_cast<Written*>(data)->file.size()); },
                   [](sf_count_t offset, int whence, void* data) {
                     auto& to = *static_cast<Written*>(data);
                     const auto start = static_cast<sf_count_t>(whence == SEEK_SET   ? 0
                                                                : whence == SEEK_CUR ? to.place
                                                                                     : to.file.size());
                     to.place = static_cast<size_t>(start + offset);
                     return start + offset;
                   },
                   [](void* into, sf_count_t count, void* data) {
                     auto& from = *static_cast<Written*>(data);
                     const size_t have = std::min(static_cast<size_t>(count), from.file.size() - from.place);
                     std::memcpy(into, from.file.data() + from.place, have);
                     from.place += have;
                     return static_cast<sf_count_t>(have);
                   },
                   [](const void* from, sf_count_t count, void* data) {
                     auto& to = *static_cast<Written*>(data);
                     to.file.resize(std::max(to.file.size(), to.place + static_cast<size_t>(count)));
                     std::memcpy(to.file.data() + to.place, from, static_cast<size_t>(count));
                     to.place += static_cast<size_t>(count);
                     return count;
                   },
                   [](void* data) { return static_cast<sf_count_t>(static_cast<Written*>(data)->place); }};
  SF_INFO info{};
  info.samplerate = static_cast<int>(rate);
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open_virtual(&io, SFM_WRITE, &info, &written);
  if (!file) throw std::runtime_error(sf_strerror(nullptr));
  sf_writef_float(file, samples.data(), static_cast<sf_count_t>(samples.size()) / channels);
  sf_close(file);
  return written.file;
}

std::string wav(const WavHeader& header, const std::string& data) {
  std::string file = "RIFF";
  append(file, static_cast<uint32_t>(36 + data.size()));
  file += "WAVEfmt ";
  append(file, uint32_t{16});
  append(file, header.coding);
  append(file, header.channels);
  append(file, header.rate);
  const auto width = static_cast<uint16_t>((header.bits + 7) / 8 * header.channels);
  append(file, static_cast<uint32_t>(header.rate * width));
  append(file, width);
  append(file, header.bits);
  file += "data";
  append(file, static_cast<uint32_t>(data.size()));
  return file + data;
}

}  // namespace pm::test
