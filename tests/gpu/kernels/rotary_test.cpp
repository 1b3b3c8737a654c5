// SPDX-License-Identifier: Apache-2.0
// Rotary embedding with the writing of keys and values into blocks, against the formula in fp64.
#include "worker/ops/cuda/rotary.h"
#include "tests/gpu/kernels/device.h"

namespace pm::cuda_test {
namespace {

using Rotaries = Kernels;

struct Case {
  int64_t heads, kv_heads, d, n;
  bool is_neox = true, rotate_values = false;
  Element type = Element::F32, cache = Element::F32;
  bool normed = false, rms = true;  ///< normed: queries and keys are normed before the rotation
};

void run(const Case& c) {
  SCOPED_TRACE(std::string(name(c.type)) + " into " + name(c.cache) + ", heads of " + std::to_string(c.d) + ", pairs " +
               std::to_string(c.n));
  const std::vector<int64_t> positions{0, 1, 77, 5}, slots{35, 16, -1, 47};  // the third token is written nowhere
  const auto tokens = static_cast<int64_t>(positions.size()), blocks = int64_t{3}, vectors = c.heads + 2 * c.kv_heads,
             stride = vectors * c.d + 2;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < c.n; ++i)
    frequencies.push_back(static_cast<float>(std::pow(100.0, -static_cast<double>(i) / static_cast<double>(c.n))));
  const Floats qkv(numbers(static_cast<size_t>(tokens * stride), 1), c.type);
  const Buffer<int64_t> on_positions(positions), on_slots(slots);
  const Buffer<float> on_frequencies(frequencies);
  const double factor = 1.25;
  const Floats weight(numbers(static_cast<size_t>(c.d), 2), Element::BF16),
      bias(numbers(static_cast<size_t>(c.d), 3), Element::BF16);
  const ops::cuda::HeadNorm of_queries{.active = c.normed,
                                       .rms = c.rms,
                                       .weight = weight.data(),
                                       .parameters = Element::BF16,
                                       .eps = 1e-3f,
                                       .weight_offset = 1};
  const ops::cuda::HeadNorm of_keys{
      .active = c.normed, .rms = c.rms, .bias = bias.data(), .parameters = Element::BF16, .eps = 1e-3f};
  const auto vector = [&](int64_t token, int64_t head) {
    const float* from = qkv.values().data() + token * stride + head * c.d;
    std::vector<double> x(from, from + c.d);
    if (!c.normed || head >= c.heads + c.kv_heads) return x;
    double mean = 0, square = 0;
    for (double value : x) mean += c.rms ? 0 : value / static_cast<double>(c.d);
    for (double value : x) square += (value - mean) * (value - mean) / static_cast<double>(c.d);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - mean) / std::sqrt(square + 1e-3);
      x[i] = head < c.heads ? x[i] * (1 + static_cast<double>(weight.values()[i]))
                            : x[i] + static_cast<double>(bias.values()[i]);
    }
    return x;
  };
  const auto turned = [&](int64_t token, int64_t head, int64_t which, bool turn) -> double {
    const std::vector<double> x = vector(token, head);
    const auto i = static_cast<size_t>(which), n = static_cast<size_t>(c.n);
    if (!turn || i >= 2 * n) return x[i];
    const size_t pair = c.is_neox ? i % n : i / 2, first = c.is_neox ? pair : 2 * pair,
                 second = c.is_neox ? n + pair : 2 * pair + 1;
    const double angle =
        static_cast<double>(positions[static_cast<size_t>(token)]) * static_cast<double>(frequencies[pair]);
    return factor * (i == first ? x[first] * std::cos(angle) - x[second] * std::sin(angle)
                                : x[second] * std::cos(angle) + x[first] * std::sin(angle));
  };
  const int64_t block_elements = c.kv_heads * 16 * c.d + 32;
  const auto places = static_cast<size_t>(blocks * block_elements);
  std::vector<double> q(static_cast<size_t>(tokens * c.heads * c.d)), k(places, 7), v(places, 7);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < c.d; ++i) {
      for (int64_t h = 0; h < c.heads; ++h)
        q[static_cast<size_t>((token * c.heads + h) * c.d + i)] = turned(token, h, i, true);
      const int64_t slot = slots[static_cast<size_t>(token)];
      for (int64_t h = 0; h < c.kv_heads && slot >= 0; ++h) {
        const auto place = static_cast<size_t>(slot / 16 * block_elements + (h * 16 + slot % 16) * c.d + i);
        k[place] = turned(token, c.heads + h, i, true);
        v[place] = turned(token, c.heads + c.kv_heads + h, i, c.rotate_values);
      }
    }
  }
  in_each_order([&] {
    const Buffer<float> cos(static_cast<size_t>(tokens * c.n)), sin(static_cast<size_t>(tokens * c.n));
    const Floats out(q.size(), c.type), k_cache(std::vector<float>(places, 7), c.cache),
        v_cache(std::vector<float>(places, 7), c.cache);
    ops::cuda::rotary_angles({.positions = on_positions.data(),
                              .frequencies = on_frequencies.data(),
                              .factor = static_cast<float>(factor),
                              .cos = cos.data(),
                              .sin = sin.data(),
                              .tokens = tokens,
                              .n = c.n},
                             nullptr);
    ops::cuda::rotary_write({.qkv = qkv.data(),
                             .qkv_stride = stride,
                             .type = c.type,
                             .q = out.data(),
                             .cos = cos.data(),
                             .sin = sin.data(),
                             .n = c.n,
                             .is_neox = c.is_neox,
                             .rotate_values = c.rotate_values,
                             .slots = on_slots.data(),
                             .k_cache = k_cache.data(),
                             .v_cache = v_cache.data(),
                             .block_stride = block_elements,
                             .cache = c.cache,
                             .tokens = tokens,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .d = c.d,
                             .query_norm = of_queries,
                             .key_norm = of_keys},
                            nullptr);
    const double of_cache = 8 * (3e-6 + unit(c.cache));
    EXPECT_LE(largest_error(out.read(), q), 8 * (3e-6 + unit(c.type)));
    EXPECT_LE(largest_error(k_cache.read(), k), of_cache);
    EXPECT_LE(largest_error(v_cache.read(), v), of_cache);
  });
}

TEST_F(Rotaries, NeoxAndGptJPairsOfAllTypes) {
  for (bool is_neox : {true, false}) {
    for (const auto& [type, cache] : {std::pair{Element::F32, Element::F32},
                                      {Element::F32, Element::BF16},
                                      {Element::F32, Element::F16},
                                      {Element::F16, Element::F16},
                                      {Element::BF16, Element::BF16},
                                      {Element::BF16, Element::F32}}) {
      run({.heads = 4, .kv_heads = 2, .d = 16, .n = 8, .is_neox = is_neox, .type = type, .cache = cache});
    }
  }
}
TEST_F(Rotaries, OnlyTheFirstNumbersOfAHeadAreRotated) {
  run({.heads = 3, .kv_heads = 3, .d = 80, .n = 10});
  run({.heads = 1, .kv_heads = 1, .d = 7, .n = 3, .is_neox = false});
  run({.heads = 2, .kv_heads = 1, .d = 256, .n = 128});
}
TEST_F(Rotaries, ValuesAreRotatedWhereTheModelAsks) {
  run({.heads = 2, .kv_heads = 2, .d = 12, .n = 6, .rotate_values = true});
}
TEST_F(Rotaries, WithoutPairsKeysAndValuesAreJustWritten) {
  run({.heads = 2, .kv_heads = 2, .d = 12, .n = 0, .cache = Element::BF16});
}
TEST_F(Rotaries, HeadsAreNormedBeforeTheRotation) {
  for (bool rms : {true, false}) {
    run({.heads = 3, .kv_heads = 1, .d = 40, .n = 20, .normed = true, .rms = rms});
    run({.heads = 2,
         .kv_heads = 2,
         .d = 16,
         .n = 4,
         .type = Element::BF16,
         .cache = Element::BF16,
         .normed = true,
         .rms = rms});
  }
}
TEST_F(Rotaries, KeysAndValuesOnly) { run({.heads = 0, .kv_heads = 2, .d = 12, .n = 0}); }
TEST_F(Rotaries, ALayerOfQueriesOnly) { run({.heads = 3, .kv_heads = 0, .d = 12, .n = 6}); }
TEST(RotaryRefusals, WhatDoesNotFitIsNamed) {
  EXPECT_THROW(ops::cuda::rotary_write({.n = 5, .tokens = 1, .heads = 1, .d = 8}, nullptr), std::invalid_argument);
  EXPECT_THROW(ops::cuda::rotary_write({.tokens = 1, .heads = 1, .kv_heads = 1, .d = 8}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(
      ops::cuda::rotary_write({.type = Element::F16, .cache = Element::BF16, .tokens = 1, .heads = 1, .d = 8}, nullptr),
      std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
