// SPDX-License-Identifier: Apache-2.0
// Prefill attention, paged and in rows, on tensor cores and in fp32, compared with the formula.
#include "tests/gpu/kernels/attention_oracle.h"

namespace pm::cuda_test {
namespace {

using ops::cuda::PrefillAttention;

struct Case {
  int64_t heads, kv_heads, d;
  std::vector<std::pair<int64_t, int64_t>> sequences;  ///< context, queries
  Terms terms = {};
  Element keys = Element::F32, type = Element::F32;
  bool paged = true, tensor_cores = false, rounded_result = true;  ///< rounded_result: it has the type of q, not fp32
  int64_t source = -1;  ///< keys of each sequence, of another stream; -1: context + queries
};

void run(const Case& c) {
  SCOPED_TRACE(std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " heads of " + std::to_string(c.d) +
               ", keys " + name(c.keys) + ", q " + name(c.type) + (c.paged ? ", paged" : ", rows"));
  std::vector<int64_t> lengths;
  std::vector<int32_t> first, tokens, contexts, keys, key_rows;
  int32_t row = 2, key_row = 1;  // rows before them are unused
  int64_t most = 0;
  for (const auto& [context, queries] : c.sequences) {
    lengths.push_back(c.source >= 0 ? c.source : context + queries);
    first.push_back(row);
    tokens.push_back(static_cast<int32_t>(queries));
    contexts.push_back(static_cast<int32_t>(context));
    keys.push_back(static_cast<int32_t>(lengths.back()));
    key_rows.push_back(key_row);
    row += static_cast<int32_t>(queries);
    key_row += keys.back();
    most = std::max(most, queries);
  }
  const int64_t q_stride = c.heads * c.d + 8, key_stride = c.kv_heads * c.d + 8;
  const Floats q(numbers(static_cast<size_t>(row * q_stride), 5), c.type);
  const PagedCache cache(lengths, c.kv_heads, c.d, c.keys, 11);
  const Floats k(numbers(static_cast<size_t>(key_row * key_stride), 6), c.keys),
      v(numbers(static_cast<size_t>(key_row * key_stride), 7), c.keys);
  const Buffer<int32_t> tables(cache.table), on_first(first), on_tokens(tokens), on_contexts(contexts), on_keys(keys),
      on_key_rows(key_rows);
  const DeviceTerms terms(c.terms);
  std::vector<double> expected(static_cast<size_t>(row * c.heads * c.d), 0.0);
  double size = 1;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int64_t query = 0; query < tokens[s]; ++query) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        const auto at = [&](const Floats& paged, const Floats& rows) {
          return [&, kv](int64_t j) {
            return c.paged ? paged.values().data() + cache.at(s, j, kv)
                           : rows.values().data() + (key_rows[s] + j) * key_stride + kv * c.d;
          };
        };
        const std::vector<double> head =
            attended(q.values().data() + (first[s] + query) * q_stride + h * c.d, c.d, contexts[s] + query,
                     static_cast<size_t>(h), c.terms, lengths[s], at(*cache.keys, k), at(*cache.values, v));
        for (int64_t i = 0; i < c.d; ++i) {
          expected[static_cast<size_t>(((first[s] + query) * c.heads + h) * c.d + i)] = head[static_cast<size_t>(i)];
          size = std::max(size, std::abs(head[static_cast<size_t>(i)]));
        }
      }
    }
  }
  const Element out_type = c.rounded_result ? c.type : Element::F32;
  in_each_order([&] {
    const Floats out(std::vector<float>(expected.size(), 0.f), out_type);  // unused rows are compared too
    const PrefillAttention p{.q = q.data(),
                             .q_stride = q_stride,
                             .out = out.data(),
                             .type = c.type,
                             .out_type = out_type,
                             .k = c.paged ? cache.keys->data() : k.data(),
                             .v = c.paged ? cache.values->data() : v.data(),
                             .keys_type = c.keys,
                             .paged = c.paged,
                             .k_stride = c.paged ? cache.block_elements() : key_stride,
                             .tables = tables.data(),
                             .table_stride = cache.stride,
                             .first = on_first.data(),
                             .tokens = on_tokens.data(),
                             .contexts = on_contexts.data(),
                             .keys = on_keys.data(),
                             .key_rows = on_key_rows.data(),
                             .sequences = static_cast<int64_t>(lengths.size()),
                             .max_tokens = most,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .d = c.d,
                             .scores = terms.scores};
    EXPECT_EQ(ops::cuda::prefill_uses_tensor_cores(p), c.tensor_cores);
    ops::cuda::prefill_attention(p, nullptr);
    // on tensor cores the weights of values are rounded too
    EXPECT_LE(largest_error(out.read(), expected), (8e-6 + (c.type == Element::F32 ? 0 : 1.5 * unit(c.type))) * size);
  });
}

using Prefill = Kernels;
const std::vector<std::pair<int64_t, int64_t>> mixed{{0, 17}, {33, 5}, {3, 1}, {0, 0}, {0, 40}};

TEST_F(Prefill, Fp32EqualsTheFormulaPagedAndInRows) {
  for (bool paged : {true, false}) {
    run({.heads = 2, .kv_heads = 1, .d = 16, .sequences = mixed, .paged = paged});
    run({.heads = 2, .kv_heads = 2, .d = 20, .sequences = {{0, 9}, {20, 3}}, .keys = Element::BF16, .paged = paged});
    run({.heads = 2,
         .kv_heads = 2,
         .d = 20,
         .sequences = {{0, 9}, {20, 3}},
         .keys = Element::F16,
         .type = Element::F16,
         .paged = paged});
  }
}
TEST_F(Prefill, Fp32TakesEverySizeOfHeads) {
  for (int64_t d : {1, 33, 64, 65, 130, 257, 512})
    run({.heads = 1, .kv_heads = 1, .d = d, .sequences = {{0, 18}, {30, 2}}});
}
TEST_F(Prefill, TensorCoresEqualTheFormulaPagedAndInRows) {
  for (Element type : {Element::F16, Element::BF16}) {
    for (bool paged : {true, false})
      run({.heads = 2,
           .kv_heads = 1,
           .d = 64,
           .sequences = mixed,
           .keys = type,
           .type = type,
           .paged = paged,
           .tensor_cores = true});
  }
}
TEST_F(Prefill, ResultsOf16BitQueriesMayBeFp32) {
  for (const auto& [type, cores] : {std::pair{Element::F16, true}, {Element::BF16, true}, {Element::BF16, false}})
    run({.heads = 2,
         .kv_heads = 1,
         .d = cores ? 64 : 20,
         .sequences = mixed,
         .keys = type,
         .type = type,
         .tensor_cores = cores,
         .rounded_result = false});
}
TEST_F(Prefill, TensorCoresTakeHeadsOfMultiplesOfEightUpTo256) {
  for (int64_t d : {8, 40, 72, 128, 256})
    run({.heads = 1,
         .kv_heads = 1,
         .d = d,
         .sequences = {{0, 19}, {50, 3}},
         .keys = Element::F16,
         .type = Element::F16,
         .tensor_cores = true});
}
TEST_F(Prefill, TensorCoresOverSeveralTilesOfQueriesAndKeys) {
  run({.heads = 2,
       .kv_heads = 2,
       .d = 32,
       .sequences = {{70, 70}, {0, 130}},
       .keys = Element::BF16,
       .type = Element::BF16,
       .tensor_cores = true});
}
TEST_F(Prefill, WindowsHideWhatLiesBeforeThem) {
  for (int64_t window : {1, 16, 33}) {
    run({.heads = 1, .kv_heads = 1, .d = 16, .sequences = mixed, .terms = {.window = window}});
    run({.heads = 1,
         .kv_heads = 1,
         .d = 16,
         .sequences = {{0, 70}, {90, 30}},
         .terms = {.window = window},
         .keys = Element::F16,
         .type = Element::F16,
         .tensor_cores = true});
  }
}
TEST_F(Prefill, WithoutCausalityWindowsHideWhatLiesBehindThemToo) {
  for (int64_t window : {1, 16, 33}) {
    run({.heads = 1,
         .kv_heads = 1,
         .d = 16,
         .sequences = {{0, 90}, {0, 7}},
         .terms = {.causal = false, .window = window}});
    run({.heads = 1,
         .kv_heads = 1,
         .d = 16,
         .sequences = {{0, 90}, {0, 7}},
         .terms = {.causal = false, .window = window},
         .keys = Element::F16,
         .type = Element::F16,
         .tensor_cores = true});
  }
}
TEST_F(Prefill, EveryTermOfAScore) {
  for (const auto& [type, cores] : {std::pair{Element::F32, false}, {Element::F16, true}}) {
    for (const Terms& terms : {Terms{.softcap = 0.5}, Terms{.slopes = slopes_of(2), .slopes_scaled = true},
                               Terms{.slopes = slopes_of(2), .slopes_bf16 = true},
                               Terms{.causal = false, .relative = numbers(2 * 21, 3), .reach = 10},
                               Terms{.window = 5, .sinks = {0.5f, 4.f}}}) {
      run({.heads = 2,
           .kv_heads = 1,
           .d = 16,
           .sequences = {{0, 23}, {17, 9}},
           .terms = terms,
           .keys = type,
           .type = type,
           .tensor_cores = cores});
    }
  }
}
TEST_F(Prefill, WithoutCausalityEveryQuerySeesEveryKeyOfTheSource) {
  for (const auto& [type, cores] : {std::pair{Element::F32, false}, {Element::BF16, true}}) {
    for (int64_t source : {0, 1, 45}) {
      run({.heads = 2,
           .kv_heads = 2,
           .d = 16,
           .sequences = {{0, 5}, {2, 20}},
           .terms = {.causal = false},
           .keys = type,
           .type = type,
           .tensor_cores = cores,
           .source = source});
    }
  }
}
TEST(PrefillRefusals, ShapesThatNoKernelTakesAreNamed) {
  EXPECT_THROW(
      ops::cuda::prefill_attention({.sequences = 1, .max_tokens = 1, .heads = 3, .kv_heads = 2, .d = 8}, nullptr),
      std::invalid_argument);
  EXPECT_THROW(
      ops::cuda::prefill_attention({.sequences = 1, .max_tokens = 1, .heads = 1, .kv_heads = 1, .d = 8}, nullptr),
      std::invalid_argument);
}

}  // namespace
}  // namespace pm::cuda_test
