// SPDX-License-Identifier: Apache-2.0
// Paged decode attention with split keys, compared with the formula: types, shapes of heads, lengths near block
// boundaries, and every score term.
#include "tests/gpu/kernels/attention_oracle.h"

namespace pm::cuda_test {
namespace {

using ops::cuda::DecodeAttention;

struct Case {
  int64_t heads, kv_heads, d;
  std::vector<int64_t> keys;  ///< of each sequence
  Terms terms = {};
  Element cache = Element::F32, type = Element::F32;
  int64_t splits = 1;
  std::vector<int64_t> contexts = {};  ///< empty: keys - 1
};

void run(const Case& c) {
  SCOPED_TRACE(std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " heads of " + std::to_string(c.d) +
               ", cache " + name(c.cache) + ", q " + name(c.type) + ", splits " + std::to_string(c.splits));
  const size_t sequences = c.keys.size(), row = static_cast<size_t>(c.heads * c.d);
  const PagedCache cache(c.keys, c.kv_heads, c.d, c.cache, 11);
  const int64_t q_stride = static_cast<int64_t>(row) + 3;  // as if keys followed
  std::vector<int32_t> keys(c.keys.begin(), c.keys.end()), contexts(c.contexts.begin(), c.contexts.end()), rows;
  for (size_t s = 0; s < sequences; ++s) rows.push_back(static_cast<int32_t>(sequences - 1 - s));
  const Floats q(numbers(sequences * static_cast<size_t>(q_stride), 5), c.type);
  const Buffer<int32_t> tables(cache.table), device_keys(keys), device_contexts(contexts), device_rows(rows);
  const DeviceTerms terms(c.terms);
  std::vector<double> expected(sequences * row);
  double size = 1e-3;
  for (size_t s = 0; s < sequences; ++s) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t kv = h / (c.heads / c.kv_heads), at = contexts.empty() ? c.keys[s] - 1 : c.contexts[s];
      Terms seen = c.terms;
      seen.causal = false;  // a decode query attends to all its keys
      const std::vector<double> head = attended(
          q.values().data() + static_cast<int64_t>(static_cast<size_t>(rows[s]) * static_cast<size_t>(q_stride)) +
              h * c.d,
          c.d, at, static_cast<size_t>(h), seen, c.keys[s],
          [&](int64_t j) { return cache.keys->values().data() + cache.at(s, j, kv); },
          [&](int64_t j) { return cache.values->values().data() + cache.at(s, j, kv); });
      for (int64_t i = 0; i < c.d; ++i) {
        size = std::max(size, std::abs(head[static_cast<size_t>(i)]));
        expected[static_cast<size_t>(rows[s]) * row + static_cast<size_t>(h * c.d + i)] = head[static_cast<size_t>(i)];
      }
    }
  }
  in_each_order([&] {
    const Floats out(sequences * row, c.type);
    DecodeAttention p{.q = q.data(),
                      .q_stride = q_stride,
                      .out = out.data(),
                      .type = c.type,
                      .k_cache = cache.keys->data(),
                      .v_cache = cache.values->data(),
                      .block_stride = cache.block_elements(),
                      .cache = c.cache,
                      .tables = tables.data(),
                      .table_stride = cache.stride,
                      .keys = device_keys.data(),
                      .contexts = contexts.empty() ? nullptr : device_contexts.data(),
                      .rows = device_rows.data(),
                      .sequences = static_cast<int64_t>(sequences),
                      .heads = c.heads,
                      .kv_heads = c.kv_heads,
                      .d = c.d,
                      .scores = terms.scores,
                      .splits = c.splits};
    const Buffer<float> parts(static_cast<size_t>(ops::cuda::decode_parts(p)));
    p.parts = parts.data();
    ops::cuda::decode_attention(p, nullptr);
    EXPECT_LE(largest_error(out.read(), expected), 5e-6 * std::max(1.0, size) + unit(c.type) * size);
  });
}

using Decode = Kernels;
const std::vector<int64_t> edges{1, 15, 16, 17, 64, 65, 0, 130};

TEST_F(Decode, EqualsTheFormulaForEveryTypeAndNumberOfSplits) {
  for (const auto& [cache, type] : {std::pair{Element::F32, Element::F32},
                                    {Element::F16, Element::F16},
                                    {Element::BF16, Element::BF16},
                                    {Element::BF16, Element::F32}}) {
    for (int64_t splits : {1, 3})
      run({.heads = 4, .kv_heads = 2, .d = 64, .keys = edges, .cache = cache, .type = type, .splits = splits});
  }
}
TEST_F(Decode, HeadsOfEverySizeThatALoadOfSixteenBytesFits) {
  for (int64_t d : {8, 80, 128, 160, 256, 264, 512})
    run({.heads = 2, .kv_heads = 2, .d = d, .keys = {1, 33}, .cache = Element::BF16, .splits = 2});
  for (int64_t d : {4, 32, 64, 72, 128, 200, 256, 260, 512})
    run({.heads = 2, .kv_heads = 1, .d = d, .keys = {1, 33}, .splits = 2});
}
TEST_F(Decode, HeadsWhoseRowsDoNotLieOnSixteenBytes) {
  for (int64_t d : {1, 5, 20, 130, 300})
    run({.heads = 3, .kv_heads = 1, .d = d, .keys = {7, 40}, .cache = Element::F16, .splits = 2});
  for (int64_t d : {3, 70, 129, 301}) run({.heads = 2, .kv_heads = 2, .d = d, .keys = {7, 40}, .splits = 2});
}
TEST_F(Decode, AnyNumberOfQueryHeadsSharesAKvHead) {
  for (int64_t group : {1, 2, 3, 4, 7, 8, 9, 20}) {
    run({.heads = 2 * group, .kv_heads = 2, .d = 16, .keys = {50, 3}, .cache = Element::BF16, .splits = 2});
    run({.heads = group, .kv_heads = 1, .d = 264, .keys = {20}, .cache = Element::F16});
  }
}
TEST_F(Decode, WindowHidesWhatLiesBeforeIt) {
  for (int64_t window : {1, 16, 17, 40})
    run({.heads = 2,
         .kv_heads = 1,
         .d = 32,
         .keys = edges,
         .terms = {.window = window},
         .cache = Element::BF16,
         .splits = 2});
}
TEST_F(Decode, EveryTermOfAScore) {
  for (int64_t splits : {1, 2}) {
    run({.heads = 4, .kv_heads = 2, .d = 32, .keys = edges, .terms = {.softcap = 0.5}, .splits = splits});
    run({.heads = 4, .kv_heads = 2, .d = 32, .keys = edges, .terms = {.slopes = slopes_of(4)}, .splits = splits});
    run({.heads = 4,
         .kv_heads = 2,
         .d = 32,
         .keys = edges,
         .terms = {.slopes = slopes_of(4), .slopes_scaled = true, .slopes_bf16 = true},
         .splits = splits});
    run({.heads = 4,
         .kv_heads = 2,
         .d = 32,
         .keys = edges,
         .terms = {.relative = numbers(4 * 41, 3), .reach = 20},
         .splits = splits});
  }
}
TEST_F(Decode, AQueryOfAnotherStreamSeesAllKeysOfTheSource) {
  run({.heads = 2,
       .kv_heads = 2,
       .d = 16,
       .keys = {20, 33},
       .terms = {.causal = false, .relative = numbers(2 * 11, 4), .reach = 5},
       .contexts = {3, 90}});
}
TEST_F(Decode, MoreSplitsThanBlocks) { run({.heads = 2, .kv_heads = 1, .d = 16, .keys = {1, 40}, .splits = 9}); }
TEST_F(Decode, LongSequences) {
  run({.heads = 1, .kv_heads = 1, .d = 16, .keys = {2500}, .cache = Element::BF16, .splits = 1});
}

TEST_F(Decode, BitsDoNotDependOnWhoElseIsInTheBatch) {
  const PagedCache cache({100, 37}, 1, 32, Element::BF16, 4);
  const Floats q(numbers(2 * 32, 5), Element::F32);
  const Buffer<int32_t> tables(cache.table), keys(std::vector<int32_t>{100, 37});
  const auto bits = [&](int64_t sequences) {
    const Floats out(static_cast<size_t>(sequences) * 32, Element::F32);
    DecodeAttention p{.q = q.data(),
                      .q_stride = 32,
                      .out = out.data(),
                      .k_cache = cache.keys->data(),
                      .v_cache = cache.values->data(),
                      .block_stride = cache.block_elements(),
                      .cache = Element::BF16,
                      .tables = tables.data(),
                      .table_stride = cache.stride,
                      .keys = keys.data(),
                      .sequences = sequences,
                      .heads = 1,
                      .kv_heads = 1,
                      .d = 32,
                      .splits = 3};
    const Buffer<float> parts(static_cast<size_t>(ops::cuda::decode_parts(p)));
    p.parts = parts.data();
    ops::cuda::decode_attention(p, nullptr);
    std::vector<float> first = out.read();
    first.resize(32);
    return first;
  };
  EXPECT_EQ(bits(1), bits(2));
}
TEST(DecodeRefusals, ShapesThatNoKernelTakesAreNamed) {
  EXPECT_THROW(ops::cuda::decode_attention({.sequences = 1, .heads = 3, .kv_heads = 2, .d = 8}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(ops::cuda::decode_attention({.sequences = 1, .heads = 2, .kv_heads = 2, .d = 513}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(ops::cuda::decode_attention({.sequences = 1, .heads = 2, .kv_heads = 2, .d = 8, .splits = 2}, nullptr),
               std::invalid_argument);
}
TEST(DecodeSplits, FillTheMultiprocessorsButNotBelowTwoBlocksAWarp) {
  EXPECT_EQ(ops::cuda::decode_splits(1, 32, 8, 8192, 132), 64);
  EXPECT_EQ(ops::cuda::decode_splits(64, 32, 8, 8192, 132), 2);
  EXPECT_EQ(ops::cuda::decode_splits(1, 32, 8, 100, 132), 1);
}

}  // namespace
}  // namespace pm::cuda_test
