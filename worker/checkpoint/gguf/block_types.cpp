// SPDX-License-Identifier: Apache-2.0
// Decodes the blocks of GGUF's types. The layouts are those that ggml defines (ggml-common.h): numbers are
// little-endian, and codes of one byte lie half a block, or 32 values, apart.
#include "worker/checkpoint/gguf/block_types.h"

#include <bit>

#include "worker/base/widest.h"
#include "worker/checkpoint/quantized/float_codes.h"

namespace pm::checkpoint {

namespace {

constexpr int small = 32;   ///< values of a block with one scale
constexpr int large = 256;  ///< values of a block whose scales are quantised (K)

float half_at(const uint8_t* bytes) { return from_f16(static_cast<uint16_t>(bytes[0] | bytes[1] << 8)); }

/// Decodes blocks of 4 or 5 bits: a scale, a minimum if `HasMin`, the fifth bits if `High`, then codes, of which byte
/// i has those of i and 16 + i. Without a minimum the middle code stands for 0.
template <bool High, bool HasMin>
inline void decode_small(const uint8_t* block, int64_t count, float* out) {
  constexpr int head = HasMin ? 4 : 2, bytes = head + (High ? 4 : 0) + small / 2;
  for (int64_t b = 0; b < count; ++b, block += bytes, out += small) {
    const float scale = half_at(block), lowest = HasMin ? half_at(block + 2) : 0;
    const uint8_t* codes = block + bytes - small / 2;
    uint32_t fifth = 0;
    if constexpr (High)
      for (int i = 3; i >= 0; --i) fifth = fifth << 8 | block[head + i];
    for (int i = 0; i < small / 2; ++i) {
      int first = codes[i] & 15, second = codes[i] >> 4;
      if constexpr (High) {
        first |= static_cast<int>(fifth >> i & 1) << 4;
        second |= static_cast<int>(fifth >> (i + 16) & 1) << 4;
      }
      if constexpr (HasMin) {
        out[i] = scale * static_cast<float>(first) + lowest;
        out[i + small / 2] = scale * static_cast<float>(second) + lowest;
      } else {
        constexpr int middle = High ? 16 : 8;
        out[i] = scale * static_cast<float>(first - middle);
        out[i + small / 2] = scale * static_cast<float>(second - middle);
      }
    }
  }
}

PM_WIDEST void decode_q4_0(const uint8_t* blocks, int64_t count, float* out) {
  decode_small<false, false>(blocks, count, out);
}
PM_WIDEST void decode_q4_1(const uint8_t* blocks, int64_t count, float* out) {
  decode_small<false, true>(blocks, count, out);
}
PM_WIDEST void decode_q5_0(const uint8_t* blocks, int64_t count, float* out) {
  decode_small<true, false>(blocks, count, out);
}
PM_WIDEST void decode_q5_1(const uint8_t* blocks, int64_t count, float* out) {
  decode_small<true, true>(blocks, count, out);
}

PM_WIDEST void decode_q8_0(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 2 + small, out += small) {
    const float scale = half_at(block);
    for (int i = 0; i < small; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

/// Writes 32 values of `scale` x code - `lowest`, where the code is `mask` of a byte shifted by `shift`, plus `more`
/// where `bit` of its high byte is set.
inline void decode_codes(const uint8_t* codes, int shift, int mask, const uint8_t* high, int bit, int more, float scale,
                         float lowest, float* out) {
  for (int i = 0; i < small; ++i) {
    int code = codes[i] >> shift & mask;
    if (high) code += (high[i] >> bit & 1) * more;
    out[i] = scale * static_cast<float>(code) - lowest;
  }
}

/// Decodes Q4_K and Q5_K: two F16 factors, 8 scales and 8 minima of 6 bits in 12 bytes, the fifth bits of Q5_K, then
/// codes, of which 32 bytes have two groups.
template <bool High>
inline void decode_large(const uint8_t* block, int64_t count, float* out) {
  constexpr int head = 16, bytes = head + (High ? small : 0) + large / 2;
  for (int64_t b = 0; b < count; ++b, block += bytes, out += large) {
    const float factor = half_at(block), min_factor = half_at(block + 2);
    const uint8_t *packed = block + 4, *fifth = High ? block + head : nullptr, *codes = block + bytes - large / 2;
    for (int group = 0; group < 8; ++group) {
      // the last four have their upper two bits in the bytes of the first four
      const int low = group & 3;
      const int scale = group < 4 ? packed[low] & 63 : (packed[8 + low] & 15) | (packed[low] >> 6) << 4;
      const int lowest = group < 4 ? packed[4 + low] & 63 : packed[8 + low] >> 4 | (packed[4 + low] >> 6) << 4;
      decode_codes(codes + group / 2 * small, group % 2 * 4, 15, fifth, group, 16, factor * static_cast<float>(scale),
                   min_factor * static_cast<float>(lowest), out + group * small);
    }
  }
}

PM_WIDEST void decode_q4_k(const uint8_t* blocks, int64_t count, float* out) {
  decode_large<false>(blocks, count, out);
}
PM_WIDEST void decode_q5_k(const uint8_t* blocks, int64_t count, float* out) { decode_large<true>(blocks, count, out); }

/// Q2_K: 16 bytes of a scale and a minimum of 4 bits, for 16 values each; codes of 2 bits, a byte of which has values
/// that are 32 apart; two F16 factors.
PM_WIDEST void decode_q2_k(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 84, out += large) {
    const uint8_t* codes = block + 16;
    const float factor = half_at(block + 80), min_factor = half_at(block + 82);
    for (int group = 0; group < 16; ++group) {
      const float scale = factor * static_cast<float>(block[group] & 15),
                  lowest = min_factor * static_cast<float>(block[group] >> 4);
      const uint8_t* own = codes + group / 8 * small + group % 2 * 16;
      for (int i = 0; i < 16; ++i)
        out[group * 16 + i] = scale * static_cast<float>(own[i] >> (group / 2 % 4 * 2) & 3) - lowest;
    }
  }
}

/// Q3_K: 32 bytes of third bits, which mean - 4 where they are absent; codes of 2 bits as in Q2_K; 16 scales of 6 bits
/// that count from -32 in 12 bytes; an F16 factor.
PM_WIDEST void decode_q3_k(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 110, out += large) {
    const uint8_t *codes = block + 32, *packed = block + 96;
    const float factor = half_at(block + 108);
    for (int group = 0; group < 16; ++group) {
      const int low = packed[group % 8] >> (group / 8 * 4) & 15, upper = packed[8 + group % 4] >> (group / 4 * 2) & 3;
      const float scale = factor * static_cast<float>((low | upper << 4) - 32);
      const int offset = group % 2 * 16, shift = group / 2 % 4 * 2;
      const uint8_t* own = codes + group / 8 * small + offset;
      for (int i = 0; i < 16; ++i) {
        const int third = block[offset + i] >> (group / 2) & 1;
        out[group * 16 + i] = scale * static_cast<float>((own[i] >> shift & 3) + 4 * third - 4);
      }
    }
  }
}

/// Q6_K: 128 bytes of the lower four bits, 64 of the upper two, 16 signed scales, an F16 factor. A half of the block
/// has 32 values in the lower bits of its first 32 bytes, 32 in those of the second, then those of the upper bits.
PM_WIDEST void decode_q6_k(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 210, out += large) {
    const float factor = half_at(block + 208);
    for (int part = 0; part < 8; ++part) {
      const int quarter = part % 4;
      const uint8_t *lower = block + part / 4 * 64 + quarter % 2 * small, *upper = block + 128 + part / 4 * small;
      for (int half = 0; half < small; half += 16) {
        const float scale = factor * static_cast<float>(static_cast<int8_t>(block[192 + part * 2 + half / 16]));
        for (int i = half; i < half + 16; ++i) {
          const int code = (lower[i] >> (quarter / 2 * 4) & 15) | (upper[i] >> (quarter * 2) & 3) << 4;
          out[part * small + i] = scale * static_cast<float>(code - 32);
        }
      }
    }
  }
}

/// Writes the values of 32 codes of four bits, of which byte i has those of i and 16 + i, that a table gives.
inline void decode_by_table(const uint8_t* codes, const int8_t (&table)[16], float scale, float* out) {
  for (int i = 0; i < small / 2; ++i) {
    out[i] = scale * static_cast<float>(table[codes[i] & 15]);
    out[i + small / 2] = scale * static_cast<float>(table[codes[i] >> 4]);
  }
}

/// What codes of IQ4 stand for: closer together where most weights are.
constexpr int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// IQ4_NL: an F16 factor, then codes.
PM_WIDEST void decode_iq4_nl(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 18, out += small)
    decode_by_table(block + 2, uneven, half_at(block), out);
}

/// IQ4_XS: an F16 factor, the upper two bits of 8 scales in two bytes, the lower four in four bytes, then codes of 32
/// values each. Scales count from -32.
PM_WIDEST void decode_iq4_xs(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 136, out += large) {
    const float factor = half_at(block);
    const int upper = block[2] | block[3] << 8;
    for (int group = 0; group < 8; ++group) {
      const int scale = (block[4 + group / 2] >> (group % 2 * 4) & 15) | (upper >> (2 * group) & 3) << 4;
      decode_by_table(block + 8 + group * small / 2, uneven, factor * static_cast<float>(scale - 32),
                      out + group * small);
    }
  }
}

/// MXFP4 (OCP Microscaling Formats 1.0): a power of two, then E2M1 codes. The table has twice their values.
PM_WIDEST void decode_mxfp4(const uint8_t* block, int64_t count, float* out) {
  constexpr int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int64_t b = 0; b < count; ++b, block += 17, out += small) {
    const uint32_t exponent = block[0];  // of 2^(exponent - 127), of which half is taken: subnormal for 0 and 1
    const uint32_t bits = exponent < 2 ? 0x200000U << exponent : (exponent - 1) << 23;
    decode_by_table(block + 1, doubled, std::bit_cast<float>(bits), out);
  }
}

/// TQ1_0: digits of base 3, five in a byte, of which -1, 0 and 1 are a digit less one. A byte is a fraction, whose next
/// digit is the whole part of three times it. 32 bytes have digits that are 32 values apart, 16 bytes those that are 16
/// apart, and 4 bytes four digits that are 4 apart. An F16 factor.
PM_WIDEST void decode_tq1_0(const uint8_t* block, int64_t count, float* out) {
  const auto digits = [](const uint8_t* bytes, int width, int number, float factor, float* to) {
    for (int digit = 0, power = 1; digit < number; ++digit, power = power * 3 % 256)
      for (int i = 0; i < width; ++i)
        to[digit * width + i] = factor * static_cast<float>((bytes[i] * power % 256 * 3 >> 8) - 1);
  };
  for (int64_t b = 0; b < count; ++b, block += 54, out += large) {
    const float factor = half_at(block + 52);
    digits(block, 32, 5, factor, out);
    digits(block + 32, 16, 5, factor, out + 160);
    digits(block + 48, 4, 4, factor, out + 240);
  }
}

/// TQ2_0: codes of 2 bits, less one; a byte has values that are 32 apart. An F16 factor.
PM_WIDEST void decode_tq2_0(const uint8_t* block, int64_t count, float* out) {
  for (int64_t b = 0; b < count; ++b, block += 66, out += large) {
    const float factor = half_at(block + 64);
    for (int part = 0; part < 8; ++part)
      for (int i = 0; i < small; ++i)
        out[part * small + i] = factor * static_cast<float>((block[part / 4 * small + i] >> (part % 4 * 2) & 3) - 1);
  }
}

constexpr BlockType plain(uint32_t id, DType type) { return {id, name_of(type), 1, size_of(type), type}; }
constexpr BlockType named(uint32_t id, std::string_view name) { return {id, name}; }

constexpr BlockType types[] = {plain(0, DType::F32),
                               plain(1, DType::F16),
                               {2, "Q4_0", small, 18, {}, decode_q4_0},
                               {3, "Q4_1", small, 20, {}, decode_q4_1},
                               {6, "Q5_0", small, 22, {}, decode_q5_0},
                               {7, "Q5_1", small, 24, {}, decode_q5_1},
                               {8, "Q8_0", small, 34, {}, decode_q8_0},
                               {10, "Q2_K", large, 84, {}, decode_q2_k},
                               {11, "Q3_K", large, 110, {}, decode_q3_k},
                               {12, "Q4_K", large, 144, {}, decode_q4_k},
                               {13, "Q5_K", large, 176, {}, decode_q5_k},
                               {14, "Q6_K", large, 210, {}, decode_q6_k},
                               {20, "IQ4_NL", small, 18, {}, decode_iq4_nl},
                               {23, "IQ4_XS", large, 136, {}, decode_iq4_xs},
                               {34, "TQ1_0", large, 54, {}, decode_tq1_0},
                               {35, "TQ2_0", large, 66, {}, decode_tq2_0},
                               {39, "MXFP4", small, 17, {}, decode_mxfp4},
                               plain(30, DType::BF16),
                               named(9, "Q8_1"),
                               named(15, "Q8_K"),
                               named(16, "IQ2_XXS"),
                               named(17, "IQ2_XS"),
                               named(18, "IQ3_XXS"),
                               named(19, "IQ1_S"),
                               named(21, "IQ3_S"),
                               named(22, "IQ2_S"),
                               named(24, "I8"),
                               named(25, "I16"),
                               named(26, "I32"),
                               named(27, "I64"),
                               named(28, "F64"),
                               named(29, "IQ1_M"),
                               named(40, "NVFP4"),
                               named(41, "Q1_0")};

}  // namespace

const BlockType* find_block_type(uint32_t id) {
  for (const BlockType& type : types)
    if (type.id == id) return &type;
  return nullptr;
}

std::string readable_block_types() {
  std::string all;
  for (const BlockType& type : types)
    if (type.bytes > 0) all += (all.empty() ? "" : ", ") + std::string(type.name);
  return all;
}

}  // namespace pm::checkpoint
