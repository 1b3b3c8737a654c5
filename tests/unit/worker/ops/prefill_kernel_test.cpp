// SPDX-License-Identifier: Apache-2.0
// Attention of many rows to packed spans of keys compared with a softmax in fp64, for the kernels of every instruction
// set.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/types.h"

namespace pm::ops {
namespace {

struct OfInstructionSet : testing::TestWithParam<const Kernels*> {};
INSTANTIATE_TEST_SUITE_P(Kernels, OfInstructionSet, testing::ValuesIn([] {
                           const SupportedKernels& supported = supported_kernels();
                           return std::vector<const Kernels*>(supported.list, supported.list + supported.count);
                         }()),
                         [](const auto& info) { return std::string(info.param->name); });

struct Case {
  int64_t rows, d, keys;
  bool causal, bias, paged;
  int64_t window = 0;  ///< with `causal`
  float softcap = 0;
};

/// The keys that row r sees: row r is a token, the last rows are the last tokens.
std::pair<int64_t, int64_t> seen_by(const Case& c, int64_t r) {
  const int64_t to = c.causal ? std::max<int64_t>(0, c.keys - c.rows + r + 1) : c.keys;
  return {c.window > 0 ? std::max<int64_t>(0, to - c.window) : 0, to};
}

at::Tensor formula(const Case& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                   double scale) {
  at::Tensor scores = at::mm(q.to(at::kDouble), k.to(at::kDouble).t()) * scale;
  if (c.softcap > 0) scores = static_cast<double>(c.softcap) * at::tanh(scores / static_cast<double>(c.softcap));
  if (c.bias) scores = scores + bias.to(at::kDouble);
  at::Tensor hidden = at::ones({c.rows, c.keys}, at::kBool);
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto [from, to] = seen_by(c, r);
    hidden[r].narrow(0, from, to - from).fill_(false);
  }
  scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return at::mm(at::nan_to_num(at::softmax(scores, 1)), v.to(at::kDouble));
}

struct Functions {
  void (*pack_keys)(const PackKeys&);
  void (*attend_rows)(const AttendRows&);
};

at::Tensor computed(const Functions& functions, const Case& c, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, const at::Tensor& bias, float scale) {
  const int64_t width = packed_width(c.d), pages = (c.keys + 15) / 16;
  std::vector<int32_t> blocks;
  at::Tensor stored[2];
  for (int64_t page = 0; page < pages; ++page) blocks.push_back(static_cast<int32_t>(pages - 1 - page));
  for (int i = 0; i < 2; ++i) {  // head 1 of two, in blocks that stand backwards
    const at::Tensor& x = i == 0 ? k : v;
    at::Tensor padded = at::full({pages * 16, c.d}, NAN, x.options());
    padded.narrow(0, 0, c.keys).copy_(x);
    stored[i] = at::full({pages, 2, 16, c.d}, NAN, x.options());
    stored[i].select(1, 1).copy_(padded.reshape({pages, 16, c.d}).flip({0}));
  }
  const auto rows_of = [&](int i) {
    const at::Tensor& flat = i == 0 ? k : v;
    KeyRows rows{.type = element(k.scalar_type()), .first = flat.const_data_ptr(), .d = c.d, .stride = c.d};
    if (!c.paged) return rows;
    rows.first = stored[i].select(1, 1).const_data_ptr();
    rows.blocks = blocks.data();
    rows.block_stride = stored[i].stride(0);
    return rows;
  };
  at::Tensor packed_keys = at::full({c.d, span_keys}, NAN), packed_values = at::full({span_keys, width}, NAN),
             sums = at::zeros({c.rows, width});
  std::vector<QueryRow> rows;
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto [from, to] = seen_by(c, r);
    rows.push_back({.q = q.const_data_ptr<float>() + r * c.d,
                    .bias = c.bias ? bias.const_data_ptr<float>() + r * c.keys : nullptr,
                    .from = from,
                    .to = to,
                    .largest = -std::numeric_limits<float>::infinity(),
                    .sum = 0,
                    .out = sums.mutable_data_ptr<float>() + r * width});
  }
  for (int64_t from = 0; from < c.keys; from += span_keys) {
    const int64_t keys = std::min(span_keys, c.keys - from);
    functions.pack_keys({rows_of(0), rows_of(1), from, keys, packed_keys.mutable_data_ptr<float>(),
                         packed_values.mutable_data_ptr<float>()});
    functions.attend_rows({element(k.scalar_type()), rows.data(), c.rows, c.d, packed_keys.const_data_ptr<float>(),
                           packed_values.const_data_ptr<float>(), from, keys, scale, c.softcap});
  }
  at::Tensor out = sums.narrow(1, 0, c.d).clone();
  for (int64_t r = 0; r < c.rows; ++r)
    if (rows[static_cast<size_t>(r)].sum > 0) out[r].div_(rows[static_cast<size_t>(r)].sum);
  return out;
}

void check(const Functions& functions, at::ScalarType type, const Case& c, double tolerance) {
  const at::Tensor q = reference::rounded_for(type, at::randn({c.rows, c.d})), k = at::randn({c.keys, c.d}).to(type),
                   v = at::randn({c.keys, c.d}).to(type), bias = at::randn({c.rows, c.keys}) * 3;
  const float scale = 0.4f;
  const double error = (computed(functions, c, q, k, v, bias, scale).to(at::kDouble) -
                        formula(c, q, k, v, bias, static_cast<double>(scale)))
                           .abs()
                           .max()
                           .item<double>();
  EXPECT_LT(error, tolerance) << c10::toString(type) << ", " << c.rows << " rows, " << c.keys << " keys of " << c.d;
}

TEST_P(OfInstructionSet, AttentionOfManyRowsIsThatOfFp64) {
  at::manual_seed(4);
  const Functions functions{GetParam()->pack_keys, GetParam()->attend_rows};
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t d : {1, 8, 20, 64, 128}) {
      for (const Case& c :
           {Case{1, d, 1, true, false, false}, Case{9, d, 9, true, false, true}, Case{13, d, 300, false, true, false},
            Case{40, d, 600, true, true, true}, Case{40, d, 600, true, false, true, 37},
            Case{19, d, 290, true, false, false, 0, 2.5f}, Case{30, d, 18, true, false, true}})
        check(functions, type, c, type == at::kBFloat16 && GetParam()->bf16_products ? 6e-3 : 1e-5);
    }
  }
}

TEST(TiledAttention, OfManyRowsIsThatOfFp64) {
  if (!kernels().tiles) GTEST_SKIP() << "this CPU has no AMX";
  at::manual_seed(5);
  const Functions functions{kernels().tiles->pack_keys, kernels().tiles->attend_rows};
  for (int64_t d : {16, 20, 48, 64, 80, 128, 256}) {
    for (const Case& c : {Case{1, d, 1, true, false, false}, Case{9, d, 9, true, false, true},
                          Case{16, d, 33, false, false, true}, Case{13, d, 300, false, false, false},
                          Case{40, d, 600, true, false, true}, Case{40, d, 600, true, false, true, 37},
                          Case{19, d, 290, true, false, false, 0, 2.5f}, Case{30, d, 18, true, false, true}})
      check(functions, at::kBFloat16, c, 2e-4);
  }
}

}  // namespace
}  // namespace pm::ops
