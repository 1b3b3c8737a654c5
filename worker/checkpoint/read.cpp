// SPDX-License-Identifier: Apache-2.0
// Positional reads of a tensor's bytes (contiguous, or strided through a bounded staging block), and the comparison of
// two tensors.
#include <algorithm>
#include <cstring>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/quantized/packed_matrix.h"
#include "worker/checkpoint/strided.h"
#include "worker/checkpoint/strips.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t staging_bytes = int64_t{4} << 20;
/// Reading a gap of up to a page costs less than another system call.
constexpr int64_t max_gap = 4096;

/// Throws std::out_of_range unless the strip lies inside the tensor; returns its bytes.
int64_t checked_bytes(const TensorInfo& tensor, const Strip& strip) {
  int64_t span = 0, total = 0;
  const bool bad =
      strip.offset < 0 || strip.rows < 0 || strip.row_bytes < 0 || strip.stride < 0 ||
      __builtin_mul_overflow(std::max<int64_t>(strip.rows - 1, 0), strip.stride, &span) ||
      __builtin_add_overflow(span, strip.row_bytes, &span) || __builtin_add_overflow(span, strip.offset, &span) ||
      __builtin_mul_overflow(strip.rows, strip.row_bytes, &total) || (strip.rows > 0 && span > tensor.bytes);
  if (bad) {
    throw std::out_of_range("strip {offset " + std::to_string(strip.offset) + ", rows " + std::to_string(strip.rows) +
                            ", row_bytes " + std::to_string(strip.row_bytes) + ", stride " +
                            std::to_string(strip.stride) + "} is outside of tensor \"" + tensor.name + "\" of " +
                            std::to_string(tensor.bytes) + " bytes");
  }
  return total;
}

}  // namespace

void check_strips(const TensorInfo& tensor, std::span<const Strip> strips, std::span<const std::byte> out) {
  int64_t total = 0;
  for (const Strip& strip : strips) total += checked_bytes(tensor, strip);
  if (total == static_cast<int64_t>(out.size())) return;
  throw std::out_of_range("strips of tensor \"" + tensor.name + "\" hold " + std::to_string(total) +
                          " bytes, the target " + std::to_string(out.size()));
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void read_strips(const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out, int64_t close,
                 const ReadBytes& read) {
  check_strips(tensor, strips, out);
  std::byte* to = out.data();
  std::vector<std::byte> staging;
  for (const Strip& strip : strips) {
    const int64_t begin = tensor.offset + strip.offset;
    if (strip.rows <= 1 || strip.stride == strip.row_bytes) {
      const int64_t bytes = strip.rows * strip.row_bytes;
      read(begin, {to, static_cast<size_t>(bytes)});
      to += bytes;
      continue;
    }
    const bool near =
        strip.stride > strip.row_bytes && strip.stride - strip.row_bytes <= close && strip.stride < staging_bytes;
    const int64_t block = near ? staging_bytes / strip.stride : 1;
    for (int64_t row = 0; row < strip.rows; row += block) {
      const int64_t rows = std::min(block, strip.rows - row), at = begin + row * strip.stride;
      if (rows == 1) {
        read(at, {to, static_cast<size_t>(strip.row_bytes)});
      } else {
        const int64_t span = (rows - 1) * strip.stride + strip.row_bytes;
        staging.resize(static_cast<size_t>(span));
        read(at, staging);
        for (int64_t i = 0; i < rows; ++i)
          std::memcpy(to + i * strip.row_bytes, staging.data() + i * strip.stride,
                      static_cast<size_t>(strip.row_bytes));
      }
      to += rows * strip.row_bytes;
    }
  }
}

void Checkpoint::read(const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out) const {
  if (!tensor.packed) return read_stored(tensor, strips, out);
  read_packed(tensor, strips, out,
              [this](const TensorInfo& stored, std::span<const Strip> parts, std::span<std::byte> to) {
                read_stored(stored, parts, to);
              });
}

void Checkpoint::read_stored(const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out) const {
  const RandomAccessFile& file = bytes_.at(static_cast<size_t>(tensor.file));
  const ReadBytes read = [&](int64_t offset, std::span<std::byte> part) {
    try {
      if (!part.empty()) file.read(offset, {reinterpret_cast<char*>(part.data()), part.size()});
    } catch (const Error& error) {
      throw Error(error.reason, "tensor \"" + tensor.name + "\": " + error.what());
    }
  };
  if (tensor.strides.empty()) return read_strips(tensor, strips, out, max_gap, read);
  check_strips(tensor, strips, out);
  read_strided(tensor, strips, out, read);
}

bool Checkpoint::equal(const TensorInfo& a, const TensorInfo& b) const {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (a.file == b.file && a.offset == b.offset && a.strides == b.strides && a.packed == b.packed) return true;
  constexpr int64_t chunk = int64_t{1} << 20;
  std::vector<std::byte> left(static_cast<size_t>(std::min(chunk, a.bytes))), right(left.size());
  for (int64_t at = 0; at < a.bytes; at += chunk) {
    const int64_t bytes = std::min(chunk, a.bytes - at);
    const Strip strip{at, 1, bytes, bytes};
    const size_t size = static_cast<size_t>(bytes);
    read(a, {&strip, 1}, {left.data(), size});
    read(b, {&strip, 1}, {right.data(), size});
    if (std::memcmp(left.data(), right.data(), size) != 0) return false;
  }
  return true;
}

}  // namespace pm::checkpoint
