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
    // Tensor cores take bf16 queries and weights as two numbers of eight bits each.
    const double rounding = c.cache == Element::BF16 ? 4e-5 : 5e-6;
    EXPECT_LE(largest_error(out.read(), expected), rounding * std::max(1.0, size) + unit(c.type) * size);
  });
}

using Decode = Kernels;
const std::vector<int64_t> edges{1, 15, 16, 17, 64, 65, 0, 130};
constexpr int64_t split_keys = 128;  // a split has at least as many

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
    for (Element cache : {Element::F32, Element::BF16})
      run({.heads = 4,
           .kv_heads = 2,
           .d = 32,
           .keys = edges,
           .terms = {.sinks = {0.5f, -3.f, 4.f, 1e4f}},
           .cache = cache,
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
TEST_F(Decode, SplitsOfEveryLengthAndType) {
  for (const Element cache : {Element::F32, Element::F16, Element::BF16}) {
    for (const int64_t splits : {2, 3, 7}) {
      run({.heads = 5,
           .kv_heads = 1,
           .d = 64,
           .keys = {split_keys, split_keys + 1, 2 * split_keys + 1, 400, 0, 7},
           .cache = cache,
           .splits = splits});
    }
  }
  run({.heads = 2,
       .kv_heads = 1,
       .d = 128,
       .keys = {500, 450},
       .terms = {.window = 300},
       .cache = Element::BF16,
       .type = Element::BF16,
       .splits = 4});
}
TEST_F(Decode, TheCombineTakesManySplitsAndHeadsOfSeveralBlocksOfColumns) {
  run({.heads = 1, .kv_heads = 1, .d = 8, .keys = {131 * split_keys}, .splits = 131});
  run({.heads = 2, .kv_heads = 2, .d = 300, .keys = {5 * split_keys, 40}, .splits = 5});
}
TEST_F(Decode, MoreSplitsThanBlocks) { run({.heads = 2, .kv_heads = 1, .d = 16, .keys = {1, 40}, .splits = 9}); }
TEST_F(Decode, LongSequences) {
  run({.heads = 1, .kv_heads = 1, .d = 16, .keys = {2500}, .cache = Element::BF16, .splits = 1});
}

/// Returns the result of the first sequence, of `sequences` with 400 and 37 keys, and all partial results.
std::pair<std::vector<float>, std::vector<float>> results(int64_t sequences, int64_t splits,
                                                          const std::vector<int32_t>& lengths, Element type) {
  const PagedCache cache({400, 37}, 1, 32, type, 4);
  const Floats q(numbers(2 * 32, 5), Element::F32), out(static_cast<size_t>(sequences) * 32, Element::F32);
  const Buffer<int32_t> tables(cache.table), keys(lengths);
  DecodeAttention p{.q = q.data(),
                    .q_stride = 32,
                    .out = out.data(),
                    .k_cache = cache.keys->data(),
                    .v_cache = cache.values->data(),
                    .block_stride = cache.block_elements(),
                    .cache = type,
                    .tables = tables.data(),
                    .table_stride = cache.stride,
                    .keys = keys.data(),
                    .sequences = sequences,
                    .heads = 1,
                    .kv_heads = 1,
                    .d = 32,
                    .splits = splits};
  const Buffer<float> parts(static_cast<size_t>(ops::cuda::decode_parts(p)));
  p.parts = parts.data();
  ops::cuda::decode_attention(p, nullptr);
  std::vector<float> first = out.read();
  first.resize(32);
  return {first, parts.read()};
}

TEST_F(Decode, BitsDoNotDependOnWhoElseIsInTheBatch) {
  for (const Element type : {Element::F32, Element::BF16})
    EXPECT_EQ(results(1, 3, {400, 37}, type).first, results(2, 3, {400, 37}, type).first);
}
TEST_F(Decode, BitsDoNotDependOnSplitsThatALengthDoesNotNeed) {  // as with a captured launch for longer sequences
  for (const Element type : {Element::F32, Element::BF16})
    EXPECT_EQ(results(1, 4, {400, 37}, type).first, results(1, 50, {400, 37}, type).first);
}
TEST_F(Decode, ASequenceUsesAsManySplitsAsItsLengthAtTheLaunchNeeds) {
  constexpr size_t splits = 9;
  for (const Element type : {Element::F32, Element::BF16}) {
    for (const auto& [length, used] : {std::pair{20, 0}, {128, 0}, {129, 2}, {400, 4}}) {
      const std::vector<float> parts = results(1, splits, {length, 0}, type).second;
      for (size_t split = 0; split < splits; ++split)
        EXPECT_EQ(std::isnan(parts[split * 32]), static_cast<int>(split) >= used) << length << " keys, split " << split;
    }
  }
}
TEST(DecodeRefusals, ShapesThatNoKernelTakesAreNamed) {
  EXPECT_THROW(ops::cuda::decode_attention({.sequences = 1, .heads = 3, .kv_heads = 2, .d = 8}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(ops::cuda::decode_attention({.sequences = 1, .heads = 2, .kv_heads = 2, .d = 513}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(ops::cuda::decode_attention({.sequences = 1, .heads = 2, .kv_heads = 2, .d = 8, .splits = 2}, nullptr),
               std::invalid_argument);
}
TEST(DecodeRefusals, MoreSplitsThanTheCombineTakesAreNamed) {
  float parts = 0;
  EXPECT_THROW(ops::cuda::decode_attention(
                   {.sequences = 1, .heads = 2, .kv_heads = 2, .d = 8, .splits = 513, .parts = &parts}, nullptr),
               std::invalid_argument);
}
TEST(DecodeSplits, FillTheWavesOfBlocksThatRunAtOnce) {
  constexpr int64_t long_sequence = 131072;
  EXPECT_EQ(ops::cuda::decode_splits(8, 3 * 132, long_sequence), 45);   // 360 of 396 places
  EXPECT_EQ(ops::cuda::decode_splits(8, 2 * 132, long_sequence), 30);   // 240 of 264
  EXPECT_EQ(ops::cuda::decode_splits(256, 3 * 132, long_sequence), 3);  // 768 of 792; with one split 256 of 396
  EXPECT_EQ(ops::cuda::decode_splits(512, 3 * 132, long_sequence), 3);
  EXPECT_EQ(ops::cuda::decode_splits(5000, 3 * 132, long_sequence), 1);
  EXPECT_EQ(ops::cuda::decode_splits(1, 8 * 148, 10 * long_sequence), 512);  // as many as the combine takes
}
TEST(DecodeSplits, AreNoMoreThanTheLongestSequenceNeeds) {
  EXPECT_EQ(ops::cuda::decode_splits(8, 396, 100), 1);
  EXPECT_EQ(ops::cuda::decode_splits(8, 396, split_keys), 1);
  EXPECT_EQ(ops::cuda::decode_splits(8, 396, split_keys + 1), 2);
  EXPECT_EQ(ops::cuda::decode_splits(8, 396, 8 * split_keys), 8);
  EXPECT_EQ(ops::cuda::decode_splits(8, 396, 0), 1);
}

}  // namespace
}  // namespace pm::cuda_test
