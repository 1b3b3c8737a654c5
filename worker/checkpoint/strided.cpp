// SPDX-License-Identifier: Apache-2.0
// Strided reads. open() has checked that no two elements overlap, so that dimensions sorted by stride visit the file
// from front to back.
#include "worker/checkpoint/strided.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace pm::checkpoint {

namespace {

constexpr int64_t max_window_bytes = int64_t{4} << 20;
constexpr int64_t max_gap = 4096;

/// One dimension: its size, and the bytes of a step in the file and in the row-major tensor.
struct Dim {
  int64_t size, step, logical;
};

/// A window of the file: the part that was read last.
class Window {
 public:
  Window(const ReadAt& read, int64_t end) : read_(read), end_(end) {}
  /// Returns bytes [begin, end) of the file, end - begin <= max_window_bytes.
  const std::byte* at(int64_t begin, int64_t end) {
    if (begin < begin_ || end > begin_ + static_cast<int64_t>(bytes_.size())) {
      const int64_t known = begin_ + static_cast<int64_t>(bytes_.size());
      // Continuing where the last window ended reads a whole window, a jump does not.
      const bool onward = begin >= begin_ && begin - known <= max_gap;
      const int64_t bytes = onward ? std::min(max_window_bytes, end_ - begin) : end - begin;
      bytes_.resize(static_cast<size_t>(bytes));
      read_(begin, bytes_);
      begin_ = begin;
    }
    return bytes_.data() + (begin - begin_);
  }

 private:
  const ReadAt& read_;
  int64_t begin_ = 0, end_;
  std::vector<std::byte> bytes_;
};

/// Returns the dimensions with more than one element, the largest step first.
std::vector<Dim> dims_of(const TensorInfo& tensor) {
  std::vector<Dim> dims;
  int64_t logical = size_of(tensor.dtype);
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] > 1) dims.push_back({tensor.shape[i], tensor.strides.at(i) * size_of(tensor.dtype), logical});
    logical *= tensor.shape[i];
  }
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.step > b.step; });
  return dims;
}

/// Copies a strip's part of one innermost run, whose first element is at `file` and `logical`.
void copy_run(const Dim& inner, int64_t element, int64_t file, int64_t logical, const Strip& strip, std::byte* out,
              Window& window) {
  if (strip.rows == 0 || strip.row_bytes == 0) return;
  const int64_t strip_end = strip.offset + (strip.rows - 1) * strip.stride + strip.row_bytes;
  const int64_t first = logical >= strip.offset ? 0 : (strip.offset - logical + inner.logical - 1) / inner.logical;
  const int64_t last =
      logical >= strip_end ? 0 : std::min(inner.size, (strip_end - logical + inner.logical - 1) / inner.logical);
  const int64_t block = std::max<int64_t>(1, (max_window_bytes - element) / inner.step);
  for (int64_t from = first; from < last; from += block) {
    const int64_t to = std::min(last, from + block);
    const std::byte* bytes = window.at(file + from * inner.step, file + (to - 1) * inner.step + element);
    for (int64_t i = from; i < to; ++i, bytes += inner.step) {
      const int64_t at = logical + i * inner.logical - strip.offset;
      const int64_t row = strip.rows == 1 ? 0 : std::min(at / strip.stride, strip.rows - 1),
                    column = at - row * strip.stride;
      if (column < strip.row_bytes)
        std::memcpy(out + row * strip.row_bytes + column, bytes, static_cast<size_t>(element));
    }
  }
}

}  // namespace

void read_strided(const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out,
                  const ReadAt& read) {
  const int64_t element = size_of(tensor.dtype);
  for (const Strip& strip : strips)
    // A stride below row_bytes would copy one element to two places.
    if (strip.offset % element || strip.row_bytes % element ||
        (strip.rows > 1 && (strip.stride % element || strip.stride < strip.row_bytes || strip.stride == 0)))
      throw std::invalid_argument("a strip of tensor \"" + tensor.name +
                                  "\" does not begin and end at whole elements of " + std::to_string(element) +
                                  " bytes");
  if (tensor.bytes == 0) return;
  std::vector<Dim> dims = dims_of(tensor);
  if (dims.empty()) dims.push_back({1, element, element});
  const Dim inner = dims.back();
  dims.pop_back();
  int64_t end = tensor.offset + (inner.size - 1) * inner.step + element;
  for (const Dim& dim : dims) end += (dim.size - 1) * dim.step;
  Window window(read, end);
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t file = tensor.offset, logical = 0;;) {
    std::byte* to = out.data();
    for (const Strip& strip : strips) {
      copy_run(inner, element, file, logical, strip, to, window);
      to += strip.rows * strip.row_bytes;
    }
    size_t d = dims.size();
    while (d > 0) {
      --d;
      file += dims[d].step, logical += dims[d].logical;
      if (++index[d] < dims[d].size) break;
      file -= dims[d].size * dims[d].step, logical -= dims[d].size * dims[d].logical;
      index[d] = 0;
      if (d == 0) return;
    }
    if (dims.empty()) return;
  }
}

}  // namespace pm::checkpoint
