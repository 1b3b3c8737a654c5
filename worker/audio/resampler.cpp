// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/resampler.h"

#include <soxr.h>

#include <new>

namespace pm::audio {
namespace {

constexpr size_t block = 4096;  // samples that come out of one call

/// Converts the samples, none of them to flush, until all are read and no more come out.
void convert(void* converter, std::span<const float> in, std::vector<float>& to) {
  const bool flushing = in.empty();
  for (;;) {
    const size_t before = to.size();
    to.resize(before + block);
    size_t read = 0, written = 0;
    const soxr_error_t error = soxr_process(static_cast<soxr_t>(converter), flushing ? nullptr : in.data(), in.size(),
                                            &read, to.data() + before, block, &written);
    to.resize(before + written);
    if (error) throw std::bad_alloc();  // with valid arguments soxr fails for want of memory only
    in = in.subspan(read);
    if (flushing ? written == 0 : in.empty() && written < block) return;
  }
}

}  // namespace

Resampler::Resampler(int64_t from, int64_t to) {
  if (from == to) return;
  soxr_error_t error = nullptr;
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_t made =
      soxr_create(static_cast<double>(from), static_cast<double>(to), 1, &error, &io, &quality, nullptr);
  if (error || !made) throw std::bad_alloc();
  converter_ = {made, [](void* one) { soxr_delete(static_cast<soxr_t>(one)); }};
}

void Resampler::push(std::span<const float> samples, std::vector<float>& to) {
  if (!converter_)
    to.insert(to.end(), samples.begin(), samples.end());
  else if (!samples.empty())
    convert(converter_.get(), samples, to);
}

void Resampler::flush(std::vector<float>& to) {
  if (converter_) convert(converter_.get(), {}, to);
}

}  // namespace pm::audio
