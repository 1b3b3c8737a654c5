// SPDX-License-Identifier: Apache-2.0
// Keys and values gathered from scattered KV blocks stand in adjacent rows, and nothing else is written.
#include "tests/gpu/kernels/attention_oracle.h"

namespace pm::cuda_test {
namespace {

using ops::cuda::GatherKv;

void run(const std::vector<int64_t>& lengths, int64_t kv_heads, int64_t d, Element type) {
  SCOPED_TRACE(std::to_string(lengths.size()) + " sequences, " + std::to_string(kv_heads) + " heads of " +
               std::to_string(d) + ", " + name(type));
  const PagedCache cache(lengths, kv_heads, d, type, 3);
  std::vector<int32_t> starts{0};
  for (const int64_t length : lengths) starts.push_back(starts.back() + static_cast<int32_t>(length));
  const int64_t rows = starts.back();
  std::vector<float> k, v;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int64_t token = 0; token < lengths[s]; ++token) {
      for (int64_t head = 0; head < kv_heads; ++head) {
        for (int64_t i = 0; i < d; ++i) {
          k.push_back(cache.keys->values()[cache.at(s, token, head) + static_cast<size_t>(i)]);
          v.push_back(cache.values->values()[cache.at(s, token, head) + static_cast<size_t>(i)]);
        }
      }
    }
  }
  const std::vector<float> beyond(16, -7.f);  // rows after the last, which nobody may write
  k.insert(k.end(), beyond.begin(), beyond.end());
  v.insert(v.end(), beyond.begin(), beyond.end());
  const Buffer<int32_t> tables(cache.table), on_starts(starts);
  in_each_order([&] {
    std::vector<float> before(k.size(), 0.f);
    std::fill(before.end() - 16, before.end(), -7.f);
    const Floats got_k(before, type), got_v(before, type);
    ops::cuda::gather_kv({.k_cache = cache.keys->data(),
                          .v_cache = cache.values->data(),
                          .block_stride = cache.block_elements(),
                          .tables = tables.data(),
                          .table_stride = cache.stride,
                          .starts = on_starts.data(),
                          .k = got_k.data(),
                          .v = got_v.data(),
                          .sequences = static_cast<int64_t>(lengths.size()),
                          .max_keys = *std::max_element(lengths.begin(), lengths.end()),
                          .kv_heads = kv_heads,
                          .d = d},
                         nullptr);
    EXPECT_EQ(got_k.read(), k) << rows << " rows";
    EXPECT_EQ(got_v.read(), v) << rows << " rows";
  });
}

using Gathers = Kernels;

TEST_F(Gathers, KeysAndValuesOfScatteredBlocksBecomeAdjacentRows) {
  for (const Element type : {Element::F16, Element::BF16}) {
    run({17}, 2, 16, type);
    run({40, 1, 16, 5}, 1, 8, type);
    run({3, 0, 33}, 3, 40, type);
    run({16, 20}, 8, 128, type);
  }
}
TEST_F(Gathers, SequencesWithoutKeysAreNoWork) { run({0, 0}, 2, 8, Element::BF16); }
TEST(GatherRefusals, ShapesThatTheKernelDoesNotTakeAreNamed) {
  EXPECT_THROW(
      ops::cuda::gather_kv({.block_stride = 160, .sequences = 1, .max_keys = 1, .kv_heads = 1, .d = 10}, nullptr),
      std::invalid_argument);
  const auto* odd = reinterpret_cast<const void*>(uintptr_t{8});
  EXPECT_THROW(
      ops::cuda::gather_kv({.k_cache = odd, .block_stride = 128, .sequences = 1, .max_keys = 1, .kv_heads = 1, .d = 8},
                           nullptr),
      std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
