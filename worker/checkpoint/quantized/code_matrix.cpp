// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/quantized/code_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "worker/base/widest.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t word_bits = 32, word_bytes = 4;
constexpr int64_t some_codes = 1024;  ///< whose bytes stay in the nearest cache

void read_strip(const ReadStored& read, const TensorInfo& stored, const Strip& strip, Bytes& out, int64_t padding = 0) {
  const size_t bytes = static_cast<size_t>(strip.rows * strip.row_bytes);
  out.resize(bytes + static_cast<size_t>(padding));
  read(stored, {&strip, 1}, std::as_writable_bytes(std::span(out).first(bytes)));
}

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// Unpacks two codes of each byte; `lower` is where that of the lower half goes: 0 or 1.
PM_WIDEST void unpack_pairs(const uint8_t* bytes, int64_t count, int lower, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[2 * i + lower] = bytes[i] & 15;
    out[2 * i + 1 - lower] = bytes[i] >> 4;
  }
}

/// Unpacks words whose codes are 0 2 4 6 1 3 5 7, from the lowest, in the order 0 to 7.
PM_WIDEST void unpack_interleaved(const uint8_t* words, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = word_at(words + word_bytes * i);
    const uint64_t halves = (word & 0x00ff00ff) | (word << 24 & 0x00ff00ff00000000);  // bytes 0 2 and 1 3
    const uint64_t codes = (halves & 0x0000000f0000000f) | (halves >> 8 & 0x00000f0000000f00) |
                           (halves << 12 & 0x000f0000000f0000) | (halves << 4 & 0x0f0000000f000000);
    std::memcpy(out + 8 * i, &codes, sizeof(codes));
  }
}

/// Unpacks the code at a bit of each word; the codes end within their words.
PM_WIDEST void unpack_column(const uint8_t* words, int64_t count, int64_t bit, uint32_t mask, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(word_at(words + word_bytes * i) >> bit & mask);
}

PM_WIDEST void unsigned_numbers(const uint8_t* codes, int64_t count, float first, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<int>(codes[i])) + first;
}

PM_WIDEST void twos_complement_numbers(const uint8_t* codes, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<int8_t>(codes[i]));
}

PM_WIDEST void e2m1_numbers(const uint8_t* codes, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = from_e2m1(codes[i]);
}

PM_WIDEST void e4m3_numbers(const uint8_t* codes, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = from_e4m3(codes[i]);
}

PM_WIDEST void listed_numbers(const uint8_t* codes, int64_t count, const float* list, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = list[codes[i]];
}

/// Reads F32 numbers [first, first + count) of a tensor.
std::vector<float> read_floats(const ReadStored& read, const TensorInfo& stored, int64_t first, int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  constexpr int64_t element = sizeof(float);
  const Strip strip{first * element, 1, count * element, count * element};
  read(stored, {&strip, 1}, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

PM_WIDEST void f16_numbers(const uint8_t* bytes, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    out[i] = from_f16(half);
  }
}

PM_WIDEST void bf16_numbers(const uint8_t* bytes, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes + 2 * i, sizeof(half));
    out[i] = from_bf16(half);
  }
}

}  // namespace

int64_t CodeMatrix::row_bytes() const {
  if (packing == Packing::AlongRows) return columns * word_bytes;
  if (stored.dtype == DType::I32) return (columns * bits + word_bits - 1) / word_bits * word_bytes;
  return (columns * bits + 7) / 8;
}

int64_t CodeMatrix::matrix_bytes() const {
  return packing == Packing::AlongRows ? (rows * bits + word_bits - 1) / word_bits * row_bytes() : rows * row_bytes();
}

void CodeMatrix::read(int64_t matrix, const Region& region, const ReadStored& read, Words& words) const {
  const bool along_rows = packing == Packing::AlongRows;
  const int64_t stored_pitch = row_bytes(), base = matrix * matrix_bytes();
  // where bytes are whole codes nothing else is read
  const int64_t unit = !along_rows && bits == 8 ? 8 : word_bits, begin = along_rows ? region.row : region.col,
                count = along_rows ? region.rows : region.cols, first = begin * bits / unit,
                end = ((begin + count) * bits + unit - 1) / unit;
  words.first_bit = begin * bits - first * unit;
  Strip strip;
  if (along_rows)
    strip = {base + first * stored_pitch + region.col * word_bytes, end - first, region.cols * word_bytes,
             stored_pitch};
  else
    strip = {base + region.row * stored_pitch + first * unit / 8, region.rows,
             std::min(stored_pitch, end * unit / 8) - first * unit / 8, stored_pitch};
  words.pitch = strip.row_bytes;
  if (list) words.list = read_floats(read, *list, 0, int64_t{1} << bits);
  read_strip(read, stored, strip, words.bytes, 1);
}

/// Returns codes of a row as bytes, in `out` unless they are stored so.
const uint8_t* CodeMatrix::unpack(const Words& words, int64_t row, int64_t col, int64_t count, uint8_t* out) const {
  const uint32_t mask = (1u << bits) - 1;
  if (packing == Packing::AlongRows) {
    const int64_t bit = words.first_bit + row * bits, shift = bit % word_bits;
    const uint8_t* at = words.bytes.data() + bit / word_bits * words.pitch + col * word_bytes;
    if (shift + bits <= word_bits) {
      unpack_column(at, count, shift, mask, out);
    } else {
      for (int64_t i = 0; i < count; ++i, at += word_bytes)
        out[i] = static_cast<uint8_t>((word_at(at) >> shift | word_at(at + words.pitch) << (word_bits - shift)) & mask);
    }
    return out;
  }
  const int64_t bit = words.first_bit + col * bits;
  const uint8_t* from = words.bytes.data() + row * words.pitch;
  if (bits == 8) return from + bit / 8;
  if (packing == Packing::Interleaved) {
    unpack_interleaved(from + bit / word_bits * word_bytes, (bit % word_bits / bits + count + 7) / 8, out);
    return out + bit % word_bits / bits;
  }
  if (bits == 4) {
    unpack_pairs(from + bit / 8, (bit % 8 / bits + count + 1) / 2, packing == Packing::HighFirst ? 1 : 0, out);
    return out + bit % 8 / bits;
  }
  for (int64_t i = 0; i < count; ++i) {  // the last code may end a byte before the one behind it that is read
    const int64_t here = bit + i * bits;
    const uint8_t* at = from + here / 8;
    out[i] = static_cast<uint8_t>((at[0] | static_cast<unsigned>(at[1]) << 8) >> (here % 8) & mask);
  }
  return out;
}

void CodeMatrix::to_numbers(const Words& words, int64_t row, int64_t col, int64_t count, float* out) const {
  std::array<uint8_t, some_codes + 16> buffer;  // whole words are unpacked
  for (int64_t some = 0; count > 0; col += some, count -= some, out += some) {
    some = std::min(count, some_codes);
    const uint8_t* codes = unpack(words, row, col, some, buffer.data());
    switch (number) {
      case Number::Unsigned:
        unsigned_numbers(codes, some, first_value, out);
        break;
      case Number::TwosComplement:
        twos_complement_numbers(codes, some, out);
        break;
      case Number::E2M1:
        e2m1_numbers(codes, some, out);
        break;
      case Number::E4M3:
        e4m3_numbers(codes, some, out);
        break;
      case Number::Listed:
        listed_numbers(codes, some, words.list.data(), out);
        break;
    }
  }
}

void ScaleMatrix::read(int64_t matrix, const Region& region, const ReadStored& read, Bytes& bytes,
                       std::vector<float>& out) const {
  const int64_t element = size_of(stored.dtype), base = each ? matrix * rows * columns : 0;
  read_strip(
      read, stored,
      {(base + region.row * columns + region.col) * element, region.rows, region.cols * element, columns * element},
      bytes);
  out.resize(static_cast<size_t>(region.rows * region.cols));
  if (codes) {
    const int64_t first = base + region.row * columns + region.col,
                  last = first + (region.rows - 1) * columns + region.cols - 1, block = first / codes->block;
    const std::vector<float> list = read_floats(read, codes->list, 0, 256),
                             blocks = read_floats(read, codes->scale, block, last / codes->block - block + 1);
    for (int64_t row = 0, i = 0; row < region.rows; ++row)
      for (int64_t col = 0; col < region.cols; ++col, ++i)
        out[static_cast<size_t>(i)] =
            list[bytes[static_cast<size_t>(i)]] *
                blocks[static_cast<size_t>((first + row * columns + col) / codes->block - block)] +
            codes->offset;
  } else if (table)
    for (size_t i = 0; i < out.size(); ++i) out[i] = (*table)[bytes[i]];
  else if (stored.dtype == DType::F32)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  else
    (stored.dtype == DType::F16 ? f16_numbers : bf16_numbers)(bytes.data(), out.size(), out.data());
  if (divisor != 1)
    for (float& one : out) one /= divisor;
}

}  // namespace pm::checkpoint
