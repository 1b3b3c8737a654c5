// The kernel behind gemv.h, compiled once per instruction set with PM_ISA (a namespace) and PM_LANES (floats of a vector). Nothing of the
// standard library is used here: an inline function compiled for AVX-512 must not become the one copy that the linker keeps.
#include <cstdint>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace pm::ops::PM_ISA {

namespace {

using Floats = float __attribute__((vector_size(4 * PM_LANES)));
using Words = uint32_t __attribute__((vector_size(4 * PM_LANES)));
using Halves = uint16_t __attribute__((vector_size(2 * PM_LANES)));
struct F16 { uint16_t bits; };
struct BF16 { uint16_t bits; };

template <typename Vector>
inline Vector at(const void* from) {
  Vector value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

inline Floats load(const float* w) { return at<Floats>(w); }
inline float one(float w) { return w; }

inline Floats load(const BF16* w) { return reinterpret_cast<Floats>(__builtin_convertvector(at<Halves>(w), Words) << 16); }
inline float one(BF16 w) {
  const uint32_t word = static_cast<uint32_t>(w.bits) << 16;
  float value;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

/// IEEE 754 binary16 to binary32 without hardware: exact, subnormals, infinities and NaNs included.
inline float one(F16 w) {
  const uint32_t sign = static_cast<uint32_t>(w.bits & 0x8000) << 16, exponent = (w.bits >> 10) & 31, mantissa = w.bits & 1023;
  float value;
  if (exponent == 0) {
    value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t word = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}

inline Floats load(const F16* w) {
#if PM_LANES == 16 && defined(__AVX512F__)   // masked: GCC 12 warns of its own header in the plain form
  return reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xffff, at<__m256i>(w)));
#elif PM_LANES == 8 && defined(__F16C__)
  return reinterpret_cast<Floats>(_mm256_cvtph_ps(at<__m128i>(w)));
#else
  Floats value;
  for (int i = 0; i < PM_LANES; ++i) value[i] = one(w[i]);
  return value;
#endif
}

/// Outputs o .. o + Outputs - 1 of Rows rows of x: each vector of x serves all outputs, each vector of w all rows.
template <int Outputs, int Rows, typename T>
inline void block(const T* w, const float* x, float* y, int64_t in, int64_t out, int64_t o) {
  Floats sums[Outputs][Rows] = {};
  const T* rows[Outputs];
  for (int i = 0; i < Outputs; ++i) rows[i] = w + (o + i) * in;
  int64_t k = 0;
  for (; k + PM_LANES <= in; k += PM_LANES) {
    Floats given[Rows];
    for (int r = 0; r < Rows; ++r) given[r] = at<Floats>(x + r * in + k);
    for (int i = 0; i < Outputs; ++i) {
      const Floats weight = load(rows[i] + k);
      for (int r = 0; r < Rows; ++r) sums[i][r] += weight * given[r];
    }
  }
  for (int i = 0; i < Outputs; ++i) {
    for (int r = 0; r < Rows; ++r) {
      float sum = 0;
      for (int lane = 0; lane < PM_LANES; ++lane) sum += sums[i][r][lane];
      for (int64_t rest = k; rest < in; ++rest) sum += one(rows[i][rest]) * x[r * in + rest];
      y[r * out + o + i] = sum;
    }
  }
}

template <int Rows, typename T>
void rows_of(const T* w, const float* x, float* y, int64_t in, int64_t out, int64_t first, int64_t last) {
  constexpr int registers = PM_LANES == 16 ? 16 : 8;   // for sums; the others hold weights and x
  constexpr int outputs = Rows >= registers ? 1 : registers / Rows > 4 ? 4 : registers / Rows;
  int64_t o = first;
  for (; o + outputs <= last; o += outputs) block<outputs, Rows>(w, x, y, in, out, o);
  for (; o < last; ++o) block<1, Rows>(w, x, y, in, out, o);
}

template <typename T>
void typed(const void* weights, const float* x, float* y, int64_t rows, int64_t in, int64_t out, int64_t first, int64_t last) {
  const T* w = static_cast<const T*>(weights);
  switch (rows) {
    case 1: return rows_of<1>(w, x, y, in, out, first, last);
    case 2: return rows_of<2>(w, x, y, in, out, first, last);
    case 3: return rows_of<3>(w, x, y, in, out, first, last);
    case 4: return rows_of<4>(w, x, y, in, out, first, last);
    case 5: return rows_of<5>(w, x, y, in, out, first, last);
    case 6: return rows_of<6>(w, x, y, in, out, first, last);
    case 7: return rows_of<7>(w, x, y, in, out, first, last);
    case 8: return rows_of<8>(w, x, y, in, out, first, last);
    default: __builtin_trap();
  }
}

}  // namespace

/// type: 0 fp32, 1 fp16, 2 bf16 (gemv.h).
void gemv(int type, const void* w, const float* x, float* y, int64_t rows, int64_t in, int64_t out, int64_t first, int64_t last) {
  if (type == 0) typed<float>(w, x, y, rows, in, out, first, last);
  else if (type == 1) typed<F16>(w, x, y, rows, in, out, first, last);
  else typed<BF16>(w, x, y, rows, in, out, first, last);
}

}  // namespace pm::ops::PM_ISA
