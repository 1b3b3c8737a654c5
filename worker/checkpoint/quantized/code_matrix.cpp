// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/quantized/code_matrix.h"

#include <algorithm>
#include <cstring>

namespace pm::checkpoint {

namespace {

constexpr int64_t word_bits = 32, word_bytes = 4;

void read_strip(const ReadStored& read, const TensorInfo& stored, const Strip& strip, std::vector<uint8_t>& out,
                int64_t padding = 0) {
  const size_t bytes = static_cast<size_t>(strip.rows * strip.row_bytes);
  out.resize(bytes + static_cast<size_t>(padding));
  read(stored, {&strip, 1}, std::as_writable_bytes(std::span(out).first(bytes)));
}

uint32_t word_at(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
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

/// Unpacks `count` codes, the first of which begins at a bit of `words`; one byte more may be read than they have.
void CodeMatrix::unpack_row(const uint8_t* words, int64_t first_bit, int64_t count, uint8_t* out) const {
  constexpr std::array<uint8_t, 8> in_turn{0, 1, 2, 3, 4, 5, 6, 7};
  if (bits == 4 && nibbles == in_turn) {
    words += first_bit / 8;
    if (first_bit % 8 && count > 0) *out++ = *words++ >> 4, --count;
    for (int64_t pair = 0; pair < count / 2; ++pair) {
      out[2 * pair] = words[pair] & 15;
      out[2 * pair + 1] = words[pair] >> 4;
    }
    if (count % 2) out[count - 1] = words[count / 2] & 15;
  } else if (bits == 4) {
    std::array<unsigned, 8> shifts{};
    for (size_t i = 0; i < shifts.size(); ++i) shifts[i] = 4u * nibbles[i];
    for (int64_t i = 0, at = first_bit / 4; i < count; words += word_bytes, at = 0) {
      const uint32_t word = word_at(words);
      if (at == 0 && count - i >= 8) {
        for (size_t k = 0; k < 8; ++k) out[i + static_cast<int64_t>(k)] = word >> shifts[k] & 15;
        i += 8;
      } else {
        for (; at < 8 && i < count; ++at) out[i++] = word >> shifts[static_cast<size_t>(at)] & 15;
      }
    }
  } else {
    const unsigned mask = (1u << bits) - 1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t bit = first_bit + i * bits;
      const uint8_t* at = words + bit / 8;
      out[i] = static_cast<uint8_t>((at[0] | static_cast<unsigned>(at[1]) << 8) >> (bit % 8) & mask);
    }
  }
}

void CodeMatrix::read(int64_t matrix, const Region& region, const ReadStored& read, std::vector<uint8_t>& out) const {
  const int64_t pitch = row_bytes(), base = matrix * matrix_bytes();
  if (packing == Packing::AlongColumns && bits == 8)
    return read_strip(read, stored, {base + region.row * pitch + region.col, region.rows, region.cols, pitch}, out);
  out.resize(static_cast<size_t>(region.rows * region.cols));
  if (out.empty()) return;
  std::vector<uint8_t> words;
  if (packing == Packing::AlongColumns) {
    const int64_t first = region.col * bits / word_bits, begin = first * word_bytes,
                  end = std::min(pitch, ((region.col + region.cols) * bits + word_bits - 1) / word_bits * word_bytes);
    read_strip(read, stored, {base + region.row * pitch + begin, region.rows, end - begin, pitch}, words, 1);
    for (int64_t row = 0; row < region.rows; ++row)
      unpack_row(words.data() + row * (end - begin), region.col * bits - first * word_bits, region.cols,
                 out.data() + row * region.cols);
    return;
  }
  const int64_t first = region.row * bits / word_bits,
                last = ((region.row + region.rows) * bits + word_bits - 1) / word_bits,
                width = region.cols * word_bytes;
  read_strip(read, stored, {base + first * pitch + region.col * word_bytes, last - first, width, pitch}, words);
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t row = 0; row < region.rows; ++row) {
    const int64_t bit = (region.row + row) * bits - first * word_bits, shift = bit % word_bits;
    const uint8_t* at = words.data() + bit / word_bits * width;
    uint8_t* to = out.data() + row * region.cols;
    if (shift + bits <= word_bits) {
      for (int64_t i = 0; i < region.cols; ++i)
        to[i] = static_cast<uint8_t>(word_at(at + i * word_bytes) >> shift & mask);
    } else {
      for (int64_t i = 0; i < region.cols; ++i)
        to[i] = static_cast<uint8_t>(
            (word_at(at + i * word_bytes) >> shift | word_at(at + width + i * word_bytes) << (word_bits - shift)) &
            mask);
    }
  }
}

void ScaleMatrix::read(int64_t matrix, const Region& region, const ReadStored& read, std::vector<float>& out) const {
  const int64_t element = size_of(stored.dtype);
  std::vector<uint8_t> bytes;
  const int64_t base = each ? matrix * rows * columns : 0;
  read_strip(
      read, stored,
      {(base + region.row * columns + region.col) * element, region.rows, region.cols * element, columns * element},
      bytes);
  out.resize(static_cast<size_t>(region.rows * region.cols));
  if (table) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = (*table)[bytes[i]];
  } else if (stored.dtype == DType::F32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
  } else {
    for (size_t i = 0; i < out.size(); ++i) {
      const auto half = static_cast<uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8);
      out[i] = stored.dtype == DType::BF16 ? from_bf16(half) : from_f16(half);
    }
  }
}

}  // namespace pm::checkpoint
