// SPDX-License-Identifier: Apache-2.0
// KV caches as integers of eight bits: how keys and values become codes, and attention to them compared with the plain
// formula on the rounded ones in fp64, for the kernels of every instruction set and in a whole step.
#include "worker/ops/kv_codes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/backend.h"
#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::ops {
namespace {

at::Tensor empty_codes(int64_t blocks, int64_t kv_heads, int64_t d) {
  return at::full({blocks, kv_heads, block_tokens, d + kv_scale_bytes}, 77, at::kChar);  // what nobody has written
}

/// What x [tokens, heads, d] becomes, by torch's operations in fp32.
at::Tensor rounded(const at::Tensor& x) {
  const at::Tensor scale = x.abs().amax(2, /*keepdim=*/true) / 127;
  return at::round(x / scale.clamp_min(1e-38)) * scale;
}

/// Rows of blocks [n, heads, 16, d] at slots -> [tokens, heads, d].
at::Tensor at_slots(const at::Tensor& blocks, const at::Tensor& slots) {
  return blocks.permute({0, 2, 1, 3}).flatten(0, 1).index_select(0, slots);
}

TEST(KvCodes, AreTheNearestMultiplesOfTheLargestMagnitudeBy127) {
  at::manual_seed(1);
  for (int64_t d : {1, 3, 20, 64, 129}) {
    const at::Tensor x = at::randn({5, 3, d}) * at::exp(at::randn({5, 3, 1}) * 4),
                     slots = at::tensor({17, 0, 40, 16, 3}, at::kLong);
    at::Tensor k = empty_codes(3, 3, d), v = empty_codes(3, 3, d);
    write_kv(x, -x, slots, k, v);
    EXPECT_EQ(head_dim(k), d);
    const at::Tensor got = at_slots(decoded(k), slots);
    EXPECT_TRUE(at::equal(got, rounded(x))) << d;
    EXPECT_TRUE(at::equal(at_slots(decoded(v), slots), -got)) << d;
    const at::Tensor half_a_step = x.abs().amax(2, true) / 254;
    EXPECT_LE(((got - x).abs() / half_a_step).max().item<float>(), 1.0001f);
    EXPECT_TRUE(at::allclose(got.abs().amax(2), x.abs().amax(2))) << "the largest is held exactly";
  }
}

TEST(KvCodes, AreRoundedHalfToEven) {
  const at::Tensor x = at::tensor({127.f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 3.5f, 126.5f}).reshape({1, 1, 8});
  at::Tensor k = empty_codes(1, 1, 8), v = empty_codes(1, 1, 8);
  write_kv(x, x, at::tensor({4}, at::kLong), k, v);
  const at::Tensor wanted = at::tensor({127.f, 0.f, 2.f, 2.f, 0.f, -2.f, 4.f, 126.f});
  EXPECT_TRUE(at::equal(decoded(k)[0][0][4], wanted));
  EXPECT_TRUE(at::equal(decoded(v)[0][0][4], wanted));
}

TEST(KvCodes, OfOneVectorChangeNoOther) {
  at::manual_seed(2);
  at::Tensor k = empty_codes(2, 2, 10), v = empty_codes(2, 2, 10);
  write_kv(at::randn({32, 2, 10}), at::randn({32, 2, 10}), at::arange(32, at::kLong), k, v);
  const at::Tensor before = decoded(k).clone();
  write_kv(at::full({1, 2, 10}, 1e4f), at::zeros({1, 2, 10}), at::tensor({21}, at::kLong), k, v);
  at::Tensor after = decoded(k).clone();
  EXPECT_GT(after[1].select(1, 5).min().item<float>(), 9999);
  after[1].select(1, 5).copy_(before[1].select(1, 5));
  EXPECT_TRUE(at::equal(after, before));
}

TEST(KvCodes, HoldZerosTinyMagnitudesAndShowWhatIsNotFinite) {
  const float tiny = std::numeric_limits<float>::denorm_min(), inf = std::numeric_limits<float>::infinity();
  const at::Tensor x =
      at::tensor({0.f, 0.f, tiny, -tiny, 177 * tiny, -177 * tiny, 3e38f, -1e38f, inf, 1.f, 1.f, NAN, -inf, 0.f})
          .reshape({7, 1, 2});
  const at::Tensor slots = at::arange(7, at::kLong);
  at::Tensor k = empty_codes(1, 1, 2), v = empty_codes(1, 1, 2), aten_k = k.clone(), aten_v = v.clone();
  write_kv(x, x, slots, k, v);
  Backend().write_kv(x, x, slots, aten_k, aten_v);
  for (const at::Tensor& cache : {k, aten_k}) {
    const at::Tensor got = at_slots(decoded(cache), slots).squeeze(1);
    EXPECT_EQ(got[0].abs().max().item<float>(), 0);
    EXPECT_EQ(got[1].abs().max().item<float>(), 0) << "their scale is 0";
    EXPECT_LE((got[2] - x[2][0]).abs().max().item<float>(), 60 * tiny) << "codes end at 127";
    EXPECT_TRUE(at::allclose(got[3], x[3][0], 1e-2));
    for (int row : {4, 5, 6}) EXPECT_TRUE(got[row].isnan().all().item<bool>()) << row;
  }
}

TEST(KvCodes, AreTheSameOfTheReferenceAndOfRotaryWrite) {
  at::manual_seed(3);
  const int64_t heads = 3, kv_heads = 2;
  for (int64_t d : {10, 33, 600}) {  // the last is wider than the CPU's own rotary_write takes
    const at::Tensor qkv = at::randn({3, (heads + 2 * kv_heads) * d}), slots = at::tensor({17, 3, 40}, at::kLong);
    const HeadNorms norms{.query = {},
                          .key = HeadNorm{.is_rms = true, .weight = at::randn({d}), .bias = {}, .eps = 1e-6}};
    const Rotation rotation{rotary_angles(at::tensor({5, 0, 9}, at::kLong), at::rand({4}), 1), true, false};
    at::Tensor k = at::zeros({3, kv_heads, block_tokens, d + kv_scale_bytes}, at::kChar), v = at::zeros_like(k),
               float_k = at::zeros({3, kv_heads, block_tokens, d}), float_v = at::zeros_like(float_k),
               again_k = at::zeros_like(k), again_v = at::zeros_like(k);
    const at::Tensor q = rotary_write(qkv, heads, norms, rotation, slots, k, v);
    EXPECT_TRUE(at::equal(q, rotary_write(qkv, heads, norms, rotation, slots, float_k, float_v)));
    Backend().write_kv(at_slots(float_k, slots), at_slots(float_v, slots), slots, again_k, again_v);
    EXPECT_TRUE(at::equal(k, again_k) && at::equal(v, again_v)) << d;
    write_kv(at_slots(float_k, slots), at_slots(float_v, slots), slots, again_k, again_v);
    EXPECT_TRUE(at::equal(k, again_k) && at::equal(v, again_v)) << d;
  }
}

struct CodesOfIsa : testing::TestWithParam<const Kernels*> {};
INSTANTIATE_TEST_SUITE_P(KvCodes, CodesOfIsa, testing::ValuesIn([] {
                           const SupportedKernels& supported = supported_kernels();
                           return std::vector<const Kernels*>(supported.list, supported.list + supported.count);
                         }()),
                         [](const auto& info) { return std::string(info.param->name); });

/// Codes of head 1 of three in blocks that stand backwards, and what they hold.
struct Stored {
  at::Tensor cache, rounded;  ///< rounded: [keys, d] fp32
  std::vector<int32_t> blocks;
  const void* head() const { return static_cast<const int8_t*>(cache.const_data_ptr()) + cache.stride(1); }
};

Stored stored(int64_t keys, int64_t d) {
  const int64_t pages = (keys + block_tokens - 1) / block_tokens;
  Stored out{.cache = empty_codes(pages + 2, 3, d), .rounded = at::randn({keys, d}), .blocks = {}};
  for (int64_t page = 0; page < pages; ++page) out.blocks.push_back(static_cast<int32_t>(pages + 1 - page));
  std::vector<int64_t> slots;
  for (int64_t key = 0; key < keys; ++key)
    slots.push_back(out.blocks[static_cast<size_t>(key / block_tokens)] * block_tokens + key % block_tokens);
  const at::Tensor x = at::randn({keys, 3, d}), places = at::tensor(slots, at::kLong);
  at::Tensor unused = empty_codes(pages + 2, 3, d);
  write_kv(x, x, places, out.cache, unused);
  out.rounded = at_slots(decoded(out.cache), places).select(1, 1);
  return out;
}

void check_attend(const Kernels& kernels, int64_t heads, int64_t d, int64_t from, int64_t to, int64_t hidden,
                  bool with_bias, float softcap = 0, bool bf16 = false) {
  SCOPED_TRACE("d " + std::to_string(d) + " keys " + std::to_string(from) + " to " + std::to_string(to) +
               (bf16 ? " in bf16" : ""));
  const bool rounded = bf16 && kernels.bf16_products && d > 3 && d <= 1024;
  const Stored keys = stored(to, d), values = stored(to, d);
  const at::Tensor q = bf16 ? at::randn({heads, d}).to(at::kBFloat16).to(at::kFloat) : at::randn({heads, d}),
                   bias = at::randn({heads, to});
  at::Tensor largest = at::empty({heads}), sums = at::empty({heads}), out = at::full({heads, d}, NAN);
  kernels.attend({Element::I8, heads, d, q.const_data_ptr<float>(), keys.head(), values.head(), keys.cache.stride(0),
                  keys.blocks.data(), from, to, hidden, 0.4f, softcap,
                  with_bias ? bias.const_data_ptr<float>() : nullptr, to, largest.mutable_data_ptr<float>(),
                  sums.mutable_data_ptr<float>(), out.mutable_data_ptr<float>(), bf16});
  const int64_t first = std::max(from, hidden);
  const auto seen = [&](const at::Tensor& x, int64_t dim) { return x.narrow(dim, first, to - first).to(at::kDouble); };
  at::Tensor scores = at::mm(q.to(at::kDouble), seen(keys.rounded, 0).t()) * static_cast<double>(0.4f);
  if (softcap > 0) scores = static_cast<double>(softcap) * at::tanh(scores / static_cast<double>(softcap));
  if (with_bias) scores = scores + seen(bias, 1);
  const at::Tensor top = scores.amax(1), weights = at::exp(scores - top.unsqueeze(1));
  const auto error = [](const at::Tensor& got, const at::Tensor& want) {
    return ((got.to(at::kDouble) - want).abs() / (1 + want.abs())).max().item<double>();
  };
  const at::Tensor above = largest.to(at::kDouble) - top;  // with rounded weights up to the next power of two
  EXPECT_LT(above.abs().max().item<double>() / (1 + top.abs().max().item<double>()), rounded ? std::log(2) : 1e-5);
  const at::Tensor share = at::exp(above);
  EXPECT_LT(error(sums * share, weights.sum(1)), 2e-5);
  EXPECT_LT(error(out / sums.unsqueeze(1), at::mm(weights / weights.sum(1, true), seen(values.rounded, 0))),
            rounded ? 5e-3 : 2e-5);
}

TEST_P(CodesOfIsa, OneQueryAttendsAsInFp64ToWhatIsRounded) {
  at::manual_seed(4);
  for (const bool bf16 : {false, true}) {
    for (int64_t d : {1, 7, 8, 20, 64, 80, 128, 257, 600, 1100}) {
      check_attend(*GetParam(), 1, d, 0, 1, 0, false, 0, bf16);
      check_attend(*GetParam(), 4, d, 0, 45, 0, true, 0, bf16);
      check_attend(*GetParam(), 11, d, 32, 32 + 100, 37, true, 0, bf16);
      check_attend(*GetParam(), 8, d, 16, 16 + max_attend_keys, 0, false, 0, bf16);
      check_attend(*GetParam(), 3, d, 32, 32 + 100, 37, false, 2.5f, bf16);
    }
  }
}

TEST_P(CodesOfIsa, AHeadHasTheSameBitsInAnyCompany) {
  at::manual_seed(5);
  const int64_t keys = 200, heads = 11;
  for (const auto& [d, bf16] : {std::pair<int64_t, bool>{64, false}, {72, false}, {64, true}, {72, true}}) {
    const Stored k = stored(keys, d), v = stored(keys, d);
    const at::Tensor q = at::randn({heads, d});
    at::Tensor largest = at::empty({heads}), sums = at::empty({heads}), out = at::empty({heads, d});
    const auto attend = [&](int64_t count, const float* of, float* most, float* total, float* result) {
      GetParam()->attend({Element::I8, count, d, of, k.head(), v.head(), k.cache.stride(0), k.blocks.data(), 0, keys, 0,
                          0.1f, 0, nullptr, 0, most, total, result, bf16});
    };
    attend(heads, q.const_data_ptr<float>(), largest.mutable_data_ptr<float>(), sums.mutable_data_ptr<float>(),
           out.mutable_data_ptr<float>());
    for (int64_t head = 0; head < heads; ++head) {
      at::Tensor own = at::empty({d});
      float most = 0, total = 0;
      attend(1, q[head].const_data_ptr<float>(), &most, &total, own.mutable_data_ptr<float>());
      EXPECT_TRUE(at::equal(own, out[head])) << head << " of " << d;
      EXPECT_EQ(total, sums[head].item<float>());
      EXPECT_EQ(most, largest[head].item<float>());
    }
  }
}

TEST_P(CodesOfIsa, ManyQueriesAttendAsInFp64ToWhatIsRounded) {
  at::manual_seed(6);
  for (const auto& [d, bf16] : {std::pair<int64_t, bool>{1, false},
                                {8, false},
                                {20, false},
                                {64, false},
                                {128, false},
                                {3, true},
                                {4, true},
                                {20, true},
                                {64, true},
                                {128, true}}) {
    const bool rounded = bf16 && d > 3 && GetParam()->bf16_products;
    for (int64_t keys : {1, 40, 256, 300}) {
      const int64_t count = 11, width = packed_width(d);
      const Stored k = stored(keys, d), v = stored(keys, d);
      const at::Tensor q = at::randn({count, d});
      at::Tensor packed_keys = at::full({d, span_keys}, NAN), packed_values = at::full({span_keys, width}, NAN),
                 sums = at::zeros({count, width});
      std::vector<QueryRow> rows;
      for (int64_t r = 0; r < count; ++r)
        rows.push_back({.q = q.const_data_ptr<float>() + r * d,
                        .bias = nullptr,
                        .from = 0,
                        .to = keys,
                        .largest = -std::numeric_limits<float>::infinity(),
                        .sum = 0,
                        .out = sums.mutable_data_ptr<float>() + r * width});
      const auto rows_of = [&](const Stored& x) {
        return KeyRows{.type = Element::I8,
                       .first = x.head(),
                       .d = d,
                       .stride = d,
                       .blocks = x.blocks.data(),
                       .block_stride = x.cache.stride(0)};
      };
      for (int64_t from = 0; from < keys; from += span_keys) {
        const int64_t some = std::min(span_keys, keys - from);
        GetParam()->pack_keys({rows_of(k), rows_of(v), from, some, packed_keys.mutable_data_ptr<float>(),
                               packed_values.mutable_data_ptr<float>(), bf16});
        GetParam()->attend_rows({Element::I8, rows.data(), count, d, packed_keys.const_data_ptr<float>(),
                                 packed_values.const_data_ptr<float>(), from, some, 0.4f, 0, bf16});
      }
      const at::Tensor weights =
          at::softmax(at::mm(q.to(at::kDouble), k.rounded.to(at::kDouble).t()) * static_cast<double>(0.4f), 1);
      at::Tensor got = sums.narrow(1, 0, d).to(at::kDouble);
      for (int64_t r = 0; r < count; ++r) got[r].div_(static_cast<double>(rows[static_cast<size_t>(r)].sum));
      EXPECT_LT((got - at::mm(weights, v.rounded.to(at::kDouble))).abs().max().item<double>(), (rounded ? 2e-2 : 2e-5))
          << keys << " keys of " << d;
    }
  }
}

/// Runs the sequences through a cache of codes, by the CPU's backend and by ATen's.
void run(int64_t heads, int64_t kv_heads, int64_t d, const std::vector<reference::SequenceShape>& shapes,
         const AttentionOptions& options, double tolerance = 4e-6) {
  at::manual_seed(7);
  reference::AttentionInputs inputs = reference::attention_inputs(heads, kv_heads, d, shapes, at::kFloat);
  at::Tensor k = empty_codes(inputs.blocks, kv_heads, d), v = empty_codes(inputs.blocks, kv_heads, d);
  write_kv(inputs.k, inputs.v, inputs.slots, k, v);
  inputs.k = rounded(inputs.k), inputs.v = rounded(inputs.v);
  const at::Tensor expected = reference::attention(inputs, options);
  const auto error = [&](const at::Tensor& got) { return (got.to(at::kDouble) - expected).abs().max().item<double>(); };
  EXPECT_LT(error(paged_attention(inputs.q, k, v, inputs.sequences, options)), tolerance);
  EXPECT_LT(error(Backend().paged_attention(inputs.q, k, v, inputs.sequences, options)), tolerance);
}

const std::vector<reference::SequenceShape> mixed{{0, 40}, {63, 1}, {5, 1}, {20, 20}, {0, 1}, {1200, 1}, {700, 30}};

TEST(KvCodes, ServeEveryKindOfAttention) {
  run(6, 6, 8, mixed, {.scale = 0.3});
  run(8, 2, 17, mixed, {.scale = 0.3});
  run(12, 1, 64, mixed, {.scale = 0.1});
  for (int64_t window : {1, 16, 700}) run(4, 2, 8, mixed, {.scale = 0.3, .window = window});
  for (double softcap : {0.5, 50.0}) run(4, 2, 8, mixed, {.scale = 0.3, .softcap = softcap});
  run(4, 2, 8, mixed, {.scale = 0.3, .window = 16, .sinks = at::tensor({0.5f, -2.f, 3.f, 1e9f})});
  run(5, 5, 8, mixed, {.scale = 0.3, .alibi = {.slopes = alibi_slopes(5)}}, 2e-5);
  at::manual_seed(5);
  run(6, 6, 8, mixed, {.scale = 1, .relative_bias = {at::randn({8, 6}), 13, false}}, 1e-5);
  run(4, 2, 8, {{0, 7, 33}, {2, 1, 20}}, {.scale = 0.3, .causal = false});  // cross-attention
  run(4, 2, 8, {{.context = 20, .tokens = 12, .bidirectional = {{4, 8}, {18, 25}}}}, {.scale = 0.3});
}

TEST(KvCodes, APromptHasTheSameResultsInChunksAndTokenByToken) {
  const int64_t tokens = 70, d = 40;
  at::manual_seed(9);
  const reference::AttentionInputs inputs =
      reference::attention_inputs(4, 2, d, std::vector<reference::SequenceShape>{{0, tokens}}, at::kFloat);
  const AttentionOptions options{.scale = 0.3};
  at::Tensor k = empty_codes(inputs.blocks, 2, d), v = empty_codes(inputs.blocks, 2, d);
  write_kv(inputs.k, inputs.v, inputs.slots, k, v);
  const at::Tensor whole = paged_attention(inputs.q, k, v, inputs.sequences, options);
  for (int64_t chunk : {1, 16, 33}) {
    at::Tensor own_k = empty_codes(inputs.blocks, 2, d), own_v = empty_codes(inputs.blocks, 2, d);
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t count = std::min(chunk, tokens - first);
      SequenceSpan span = inputs.sequences.spans[0];
      span.tokens = count, span.context = first, span.keys = first + count;
      write_kv(inputs.k.narrow(0, first, count), inputs.v.narrow(0, first, count), inputs.slots.narrow(0, first, count),
               own_k, own_v);
      const at::Tensor some =
          paged_attention(inputs.q.narrow(0, first, count), own_k, own_v, {.spans = {span}}, options);
      EXPECT_LT((some - whole.narrow(0, first, count)).abs().max().item<float>(), 2e-6f) << chunk << " at " << first;
    }
    EXPECT_TRUE(at::equal(own_k, k) && at::equal(own_v, v)) << chunk;
  }
}

TEST(KvCodes, ASequenceHasTheSameBitsInAnyCompany) {
  at::manual_seed(10);
  const std::vector<reference::SequenceShape> shapes{{1200, 1}, {0, 1}, {511, 1}, {512, 1}, {40, 1}};
  const reference::AttentionInputs inputs = reference::attention_inputs(12, 2, 64, shapes, at::kFloat);
  at::Tensor k = empty_codes(inputs.blocks, 2, 64), v = empty_codes(inputs.blocks, 2, 64);
  write_kv(inputs.k, inputs.v, inputs.slots, k, v);
  const AttentionOptions options{.scale = 0.2};
  const at::Tensor together = paged_attention(inputs.q, k, v, inputs.sequences, options);
  for (size_t i = 0; i < shapes.size(); ++i) {
    SequenceSpan span = inputs.sequences.spans[i];
    const auto row = static_cast<int64_t>(i);
    span.first = 0;
    EXPECT_TRUE(
        at::equal(paged_attention(inputs.q.narrow(0, row, 1), k, v, {.spans = {span}}, options)[0], together[row]))
        << i;
  }
}

}  // namespace
}  // namespace pm::ops
