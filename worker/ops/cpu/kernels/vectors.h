// SPDX-License-Identifier: Apache-2.0
// SIMD vectors of PM_LANES floats in namespace pm::ops::PM_ISA, and the conversion of each element type to them. The
// file uses nothing of the standard library (kernels.h).
#pragma once
#include <cstdint>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace pm::ops::PM_ISA {

namespace {

constexpr int lanes = PM_LANES;
using Floats = float __attribute__((vector_size(4 * PM_LANES)));
using Ints = int32_t __attribute__((vector_size(4 * PM_LANES)));
using Words = uint32_t __attribute__((vector_size(4 * PM_LANES)));
using Bytes = int8_t __attribute__((vector_size(PM_LANES)));
using Halves = uint16_t __attribute__((vector_size(2 * PM_LANES)));
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

template <typename Vector>
inline Vector at(const void* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline void put(float* to, Floats value) { __builtin_memcpy(to, &value, sizeof value); }
inline Floats all(float value) { return value - Floats{}; }  // a subtraction keeps -0

inline Floats load(const float* w) { return at<Floats>(w); }
inline float one(float w) { return w; }

/// Uses intrinsics where there are any, because GCC 12 compiles a conversion to several instructions.
inline Floats load(const BF16* w) {
#if PM_LANES == 16 && defined(__AVX512F__)  // masked: GCC 12 warns about its own header in the plain form
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, at<__m256i>(w))) << 16);
#elif PM_LANES == 8 && defined(__AVX2__)
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(_mm256_cvtepu16_epi32(at<__m128i>(w))) << 16);
#else
  return reinterpret_cast<Floats>(__builtin_convertvector(at<Halves>(w), Words) << 16);
#endif
}
inline float one(BF16 w) {
  const uint32_t word = static_cast<uint32_t>(w.bits) << 16;
  float value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

/// Converts IEEE 754 binary16 to binary32 without hardware: exact, including subnormals, infinities and NaNs.
inline float one(F16 w) {
  const uint32_t sign = static_cast<uint32_t>(w.bits & 0x8000) << 16, exponent = (w.bits >> 10) & 31,
                 mantissa = w.bits & 1023;
  float value;
  if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t word = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

inline Floats load(const int8_t* w) {
#if PM_LANES == 16 && defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, at<__m128i>(w))));
#elif PM_LANES == 8 && defined(__AVX2__)
  return reinterpret_cast<Floats>(
      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(w)))));
#else
  return __builtin_convertvector(at<Bytes>(w), Floats);
#endif
}
inline float one(int8_t w) { return static_cast<float>(w); }

/// Returns a number in all lanes.
inline Floats all(const BF16* w) {
  const uint32_t word = static_cast<uint32_t>(w->bits) << 16;
#if PM_LANES == 16 && defined(__AVX512F__)  // from a general register: one instruction
  return reinterpret_cast<Floats>(_mm512_set1_epi32(static_cast<int>(word)));
#elif PM_LANES == 8 && defined(__AVX2__)
  return reinterpret_cast<Floats>(_mm256_set1_epi32(static_cast<int>(word)));
#else
  return reinterpret_cast<Floats>(Words{} + word);
#endif
}

/// Loads PM_LANES bytes, one for each lane.
inline Words load_words(const uint8_t* w) {
#if PM_LANES == 16 && defined(__AVX512F__)
  return reinterpret_cast<Words>(_mm512_maskz_cvtepu8_epi32(0xffff, at<__m128i>(w)));
#elif PM_LANES == 8 && defined(__AVX2__)
  return reinterpret_cast<Words>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(w))));
#else
  using Unsigned = uint8_t __attribute__((vector_size(PM_LANES)));
  return __builtin_convertvector(at<Unsigned>(w), Words);
#endif
}

/// Decodes four-bit codes (nibbles): (code - 8) x scale.
struct NibbleDecoder {
#if PM_LANES == 16 && defined(__AVX512F__)  // a code is an index; the permutation reads its low four bits alone
  Floats values;
  explicit NibbleDecoder(Floats scale)
      : values(Floats{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7} * scale) {}
  Floats decoded(Words codes) const {
    return reinterpret_cast<Floats>(
        _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(codes), reinterpret_cast<__m512>(values)));
  }
  Floats low(Words bytes) const { return decoded(bytes); }
#else
  Floats scale;
  explicit NibbleDecoder(Floats scale) : scale(scale) {}
  Floats decoded(Words codes) const {
    return (__builtin_convertvector(reinterpret_cast<Ints>(codes), Floats) - 8.f) * scale;
  }
  Floats low(Words bytes) const { return decoded(bytes & 15); }
#endif
  Floats high(Words bytes) const { return decoded(bytes >> 4); }
};

#if PM_LANES == 8 && defined(__AVX2__)
/// Decodes the 32 four-bit codes of a group, code - 8, of which a byte has one of the first half in its low bits and
/// one of the second half in its high bits. Two permutations of bytes look up the halves of bf16 numbers.
inline void decode_group(const uint8_t* from, Floats (&found)[4]) {
  const __m256i all_bytes = _mm256_broadcastsi128_si256(at<__m128i>(from));
  // quarters in the order in which they are unpacked below, so that vectors have consecutive codes
  const __m256i quarters = _mm256_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11,  //
                                            4, 5, 6, 7, 12, 13, 14, 15, 4, 5, 6, 7, 12, 13, 14, 15);
  const __m256i shifted = _mm256_srlv_epi64(_mm256_shuffle_epi8(all_bytes, quarters), _mm256_setr_epi64x(0, 4, 0, 4));
  const __m256i codes = _mm256_and_si256(shifted, _mm256_set1_epi8(15));
  const __m256i high_bytes = _mm256_broadcastsi128_si256(_mm_setr_epi8(  // of -8 to 7
      -63, -64, -64, -64, -64, -64, -64, -65, 0, 63, 64, 64, 64, 64, 64, 64));
  const __m256i low_bytes = _mm256_broadcastsi128_si256(_mm_setr_epi8(  //
      0, -32, -64, -96, -128, 64, 0, -128, 0, -128, 0, 64, -128, -96, -64, -32));
  const __m256i high = _mm256_shuffle_epi8(high_bytes, codes), low = _mm256_shuffle_epi8(low_bytes, codes);
  const __m256i first = _mm256_unpacklo_epi8(low, high), second = _mm256_unpackhi_epi8(low, high),
                none = _mm256_setzero_si256();
  found[0] = reinterpret_cast<Floats>(_mm256_unpacklo_epi16(none, first));
  found[1] = reinterpret_cast<Floats>(_mm256_unpackhi_epi16(none, first));
  found[2] = reinterpret_cast<Floats>(_mm256_unpacklo_epi16(none, second));
  found[3] = reinterpret_cast<Floats>(_mm256_unpackhi_epi16(none, second));
}
#endif

inline Floats load(const F16* w) {
#if PM_LANES == 16 && defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xffff, at<__m256i>(w)));
#elif PM_LANES == 8 && defined(__F16C__)
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(at<__m128i>(w)));
#else
  Floats value;
  for (int i = 0; i < PM_LANES; ++i) value[i] = one(w[i]);
  return value;
#endif
}

/// Loads `count` elements; the rest of the vector is 0.
template <typename T>
inline Floats load_some(const T* from, int64_t count) {
  if (count >= PM_LANES) return load(from);
  float some[PM_LANES] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = one(from[i]);
  return load(some);
}

/// Transposes PM_LANES vectors of PM_LANES words.
template <typename Vector>
__attribute__((always_inline)) inline void transpose(Vector (&v)[PM_LANES]) {
#if PM_LANES == 16
  Vector t[16];
  for (int i = 0; i < 16; i += 2) {  // words of neighbours
    t[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    t[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  for (int i = 0; i < 16; i += 4) {  // pairs of words
    for (int h = 0; h < 2; ++h) {
      const Vector a = t[i + h], b = t[i + h + 2];
      v[i + 2 * h] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      v[i + 2 * h + 1] = __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  for (int half = 0; half < 16; half += 8) {  // quarters of vectors
    for (int i = 0; i < 4; ++i) {
      const Vector a = v[half + i], b = v[half + i + 4];
      t[half + i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
      t[half + i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
  }
  for (int i = 0; i < 8; ++i) {
    v[i] = __builtin_shufflevector(t[i], t[i + 8], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    v[i + 8] = __builtin_shufflevector(t[i], t[i + 8], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
#elif PM_LANES == 8
  Vector t[8];
  for (int i = 0; i < 8; i += 2) {  // words of neighbours
    t[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    t[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {  // pairs of words
    for (int h = 0; h < 2; ++h) {
      const Vector a = t[i + h], b = t[i + h + 2];
      v[i + 2 * h] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      v[i + 2 * h + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {  // halves of vectors
    const Vector a = v[i], b = v[i + 4];
    v[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
#else
  uint32_t words[PM_LANES][PM_LANES], turned[PM_LANES][PM_LANES];
  __builtin_memcpy(words, v, sizeof words);
  for (int i = 0; i < PM_LANES; ++i)
    for (int k = 0; k < PM_LANES; ++k) turned[k][i] = words[i][k];
  __builtin_memcpy(v, turned, sizeof turned);
#endif
}

/// Sums the lanes pairwise: adds the halves until one lane is left. The vector stays in registers: one that is copied
/// to memory here would be there in all loops that add to it.
inline float sum(Floats value) {
#if PM_LANES == 16
  const auto eight = __builtin_shufflevector(value, value, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  const Floats eight = value;
#endif
#if PM_LANES >= 8
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  const Floats four = eight;
#endif
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

inline float largest_of(Floats value) {
  float largest = value[0];
  for (int i = 1; i < PM_LANES; ++i) largest = value[i] > largest ? value[i] : largest;
  return largest;
}

/// Returns the lanes' indices 0, 1 ...
inline Ints lane_indices() {
  Ints indices;
  for (int i = 0; i < PM_LANES; ++i) indices[i] = i;
  return indices;
}

/// Adds neighbouring lanes of each two of 2 Count vectors: first within quarters of four lanes, which costs less, then
/// whole quarters.
template <int Count>
__attribute__((always_inline)) inline void add_neighbours(Floats (&v)[PM_LANES]) {
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    const Floats a = v[2 * i], b = v[2 * i + 1];
#if PM_LANES == 16
    if constexpr (Count >= 4)
      v[i] = __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
             __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
    else
      v[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
             __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
#elif PM_LANES == 8
    if constexpr (Count >= 2)
      v[i] = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
             __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
    else
      v[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
             __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
#else
    v[i] = __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
  }
}

/// Returns the sum of the lanes of vector i in lane i. Neighbours are added first. No loop is left, so that the vectors
/// stay in registers.
__attribute__((always_inline)) inline Floats sums_of(Floats (&v)[PM_LANES]) {
  if constexpr (PM_LANES >= 16) add_neighbours<8>(v);
  if constexpr (PM_LANES >= 8) add_neighbours<4>(v);
  add_neighbours<2>(v);
  add_neighbours<1>(v);
  return v[0];
}

constexpr float log2_of_e = 1.44269504f, ln_of_2 = 0.693147181f;

/// e^x as power * 2^times, with a power of 2^-1/2 to 2^1/2.
struct Exponential {
  Floats power, times;
};

/// Computes e^x of |x| < 2^21 to about 2 units in the last place. The method is Cody and Waite's reduction by ln 2 and
/// the Taylor polynomial of degree 7 on the remainder, at most ln 2 / 2.
inline Exponential exponential(Floats x) {
  const Floats round = all(0x1.8p23f), times = x * log2_of_e + round - round;
  const Floats rest = x - times * 0.693145752f - times * 1.42860677e-6f;
  constexpr float taylor[] = {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1.f, 1.f};
  Floats power = all(1.f / 5040);
  for (float coefficient : taylor) power = power * rest + coefficient;
  return {power, times};
}

/// Computes e^x; 0 below -87 (subnormals are flushed), the value at 88 above it.
inline Floats exp(Floats x) {
  const Floats low = all(-87.f), high = all(88.f), clamped = x < low ? low : x > high ? high : x;
  const auto [power, times] = exponential(clamped);
  const Ints exponent = (__builtin_convertvector(times, Ints) + 127) << 23;
  const Floats value = power * reinterpret_cast<Floats>(exponent);
  return x < low ? Floats{} : value;
}

/// Computes the hyperbolic tangent to some units in the last place: from e^2x, and near 0, where that loses digits, by
/// the Taylor polynomial of degree 11.
inline Floats tanh(Floats x) {
  const Floats square = x * x, far = 1.f - 2.f / (exp(x + x) + 1.f);
  constexpr float taylor[] = {62.f / 2835, -17.f / 315, 2.f / 15, -1.f / 3, 1.f};
  Floats near = all(-1382.f / 155925);
  for (float coefficient : taylor) near = near * square + coefficient;
  return square < all(0.09f) ? x * near : far;
}

}  // namespace

}  // namespace pm::ops::PM_ISA
