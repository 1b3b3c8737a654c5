// SPDX-License-Identifier: Apache-2.0
// The kernels of every instruction set compared with ATen in fp64; the bits do not depend on how the work is split.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/types.h"
#include "worker/ops/quantized_matrix.h"

namespace pm::ops {
namespace {

std::vector<const Kernels*> all_kernels() {
  const SupportedKernels& supported = supported_kernels();
  return {supported.list, supported.list + supported.count};
}

struct OfIsa : testing::TestWithParam<const Kernels*> {};
INSTANTIATE_TEST_SUITE_P(Kernels, OfIsa, testing::ValuesIn(all_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

at::Tensor gemv(const Kernels& kernels, const at::Tensor& x, const at::Tensor& w, std::vector<int64_t> cuts = {}) {
  at::Tensor y = at::full({x.size(0), w.size(0)}, NAN);
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(w.size(0));
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    kernels.gemv({element(w.scalar_type()), w.const_data_ptr(), x.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                  x.size(0), w.size(1), w.size(0), cuts[i], cuts[i + 1]});
  }
  return y;
}

TEST_P(OfIsa, ProductsAreThoseOfFp64ForEveryTypeSizeAndNumberOfRows) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t in : {0, 1, 15, 16, 17, 32, 33, 64, 333, 1024}) {
      for (int64_t out : {1, 2, 5, 13, 45}) {
        const at::Tensor w = at::randn({out, in}).to(type), x = at::randn({8, in});
        const at::Tensor want = at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
        for (int64_t rows = 1; rows <= max_gemv_rows; ++rows) {
          const at::Tensor got = gemv(*GetParam(), x.narrow(0, 0, rows).contiguous(), w);
          ASSERT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(),
                    1e-6 * static_cast<double>(in + 8))
              << c10::toString(type) << " [" << out << ", " << in << "], " << rows << " rows";
        }
      }
    }
  }
}

TEST_P(OfIsa, AProductsBitsDependOnNeitherItsCompanyNorTheCut) {
  at::manual_seed(2);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t in : {7, 64, 333}) {
      const at::Tensor w = at::randn({37, in}).to(type), x = at::randn({8, in});
      const at::Tensor whole = gemv(*GetParam(), x, w);
      for (int64_t rows = 1; rows <= max_gemv_rows; ++rows) {
        EXPECT_TRUE(
            at::equal(gemv(*GetParam(), x.narrow(0, 0, rows).contiguous(), w, {1, 6, 23}), whole.narrow(0, 0, rows)))
            << rows << " rows of " << in;
      }
    }
  }
}

TEST_P(OfIsa, Int8ProductsAreThoseOfFp64ForEverySizeAndGroup) {
  at::manual_seed(6);
  for (const auto& [in, group] : {std::pair<int64_t, int64_t>{0, 32},
                                  {1, 32},
                                  {31, 32},
                                  {32, 32},
                                  {77, 32},
                                  {1024, 32},
                                  {160, 80},
                                  {60, 20},
                                  {24, 8},
                                  {100, 100}}) {
    const int64_t out = 13, groups = (in + group - 1) / group;
    const at::Tensor numbers = at::randint(-127, 128, {out, in}, at::kChar),
                     scales = at::rand({out, groups}).to(at::kBFloat16), x = at::randn({8, in});
    const at::Tensor wide =
                         numbers.to(at::kDouble) * scales.to(at::kDouble).repeat_interleave(group, 1).narrow(1, 0, in),
                     want = at::mm(x.to(at::kDouble), wide.t());
    at::Tensor copy = at::full({out, in}, NAN);
    GetParam()->widen({.type = Element::I8,
                       .w = numbers.const_data_ptr(),
                       .in = in,
                       .out = out,
                       .last = out,
                       .scales = static_cast<const uint16_t*>(scales.const_data_ptr()),
                       .group = group,
                       .w_stride = in,
                       .scale_stride = groups},
                      copy.mutable_data_ptr<float>());
    EXPECT_TRUE(at::equal(copy.to(at::kDouble), wide)) << in << " in groups of " << group;
    for (int64_t rows = 1; rows <= max_gemv_rows; ++rows) {
      at::Tensor got = at::full({rows, out}, NAN);
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 6}, {6, out}}) {
        GetParam()->gemv({Element::I8, numbers.const_data_ptr(), x.const_data_ptr<float>(),
                          got.mutable_data_ptr<float>(), rows, in, out, first, last,
                          static_cast<const uint16_t*>(scales.const_data_ptr()), group, in, groups});
      }
      ASSERT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(),
                1e-4 * static_cast<double>(in + 8))
          << in << " in groups of " << group << ", " << rows << " rows";
    }
  }
}

TEST_P(OfIsa, ProductsOfFourBitCodesAreThoseOfFp64ForEverySize) {
  at::manual_seed(7);
  for (int64_t in : {0, 1, 15, 17, 31, 32, 77, 512, 1056, 1600}) {
    const int64_t out = 13;
    const QuantizedMatrix w = quantized(at::randn({out, in}), {.bits = 4});
    const at::Tensor x = at::randn({8, in}), want = at::mm(x.to(at::kDouble), dequantized(w).to(at::kDouble).t());
    at::Tensor wide = at::full({7, in}, NAN);
    GetParam()->widen({.type = Element::I4,
                       .w = w.codes.const_data_ptr(),
                       .in = in,
                       .out = out,
                       .first = 4,
                       .last = 11,
                       .scales = static_cast<const uint16_t*>(w.scales.const_data_ptr()),
                       .group = 32,
                       .w_stride = w.layout.code_bytes(),
                       .scale_stride = w.layout.groups()},
                      wide.mutable_data_ptr<float>());
    EXPECT_TRUE(at::equal(wide, dequantized(w.rows(4, 7)))) << in << " inputs";
    for (int64_t rows = 1; rows <= max_gemv_rows; ++rows) {
      at::Tensor got = at::full({rows, out}, NAN);
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 6}, {6, out}}) {
        GetParam()->gemv({Element::I4, w.codes.const_data_ptr(), x.const_data_ptr<float>(),
                          got.mutable_data_ptr<float>(), rows, in, out, first, last,
                          static_cast<const uint16_t*>(w.scales.const_data_ptr()), 32, w.layout.code_bytes(),
                          w.layout.groups()});
      }
      ASSERT_LT((got.to(at::kDouble) - want.narrow(0, 0, rows)).abs().max().item<double>(),
                1e-6 * static_cast<double>(in + 8))
          << in << " inputs, " << rows << " rows";
    }
  }
}

TEST_P(OfIsa, SiluAndMulIsThatOfAten) {
  at::manual_seed(3);
  for (int64_t count : {1, 4, 15, 16, 17, 100}) {
    at::Tensor gate = at::randn({count}) * 30, up = at::randn({count}), out = at::empty({count});
    gate[0] = -200;
    if (count > 1) gate[count - 1] = 200;
    GetParam()->silu_and_mul(gate.const_data_ptr<float>(), up.const_data_ptr<float>(), out.mutable_data_ptr<float>(),
                             count);
    const at::Tensor want = at::silu(gate.to(at::kDouble)) * up.to(at::kDouble);
    EXPECT_LT((out.to(at::kDouble) - want).abs().max().item<double>(), 2e-5) << count;
    EXPECT_LT(((out.to(at::kDouble) - want) / (want.abs() + 1)).abs().max().item<double>(), 1e-6) << count;
  }
}

/// Compares attention to one span of keys in shuffled blocks with softmax in fp64.
void check_attend(const Kernels& kernels, at::ScalarType type, int64_t heads, int64_t d, int64_t from, int64_t to,
                  int64_t hidden, bool with_bias, float softcap = 0) {
  SCOPED_TRACE(std::string(c10::toString(type)) + " d " + std::to_string(d) + " keys " + std::to_string(from) + " to " +
               std::to_string(to) + " from " + std::to_string(hidden));
  const int64_t pages = (to + 15) / 16, kv_heads = 3, kv = 1;
  const at::Tensor keys = at::randn({pages + 2, kv_heads, 16, d}).to(type),
                   values = at::randn({pages + 2, kv_heads, 16, d}).to(type),
                   q = reference::rounded_for(type, at::randn({heads, d}));
  const at::Tensor bias = at::randn({heads, to});
  std::vector<int32_t> blocks;
  for (int64_t page = 0; page < pages; ++page) blocks.push_back(static_cast<int32_t>(pages + 1 - page));
  at::Tensor largest = at::empty({heads}), sums = at::empty({heads}), out = at::empty({heads, d});
  kernels.attend({element(type), heads, d, q.const_data_ptr<float>(), keys.select(1, kv).const_data_ptr(),
                  values.select(1, kv).const_data_ptr(), keys.stride(0), blocks.data(), from, to, hidden, 0.4f, softcap,
                  with_bias ? bias.const_data_ptr<float>() : nullptr, to, largest.mutable_data_ptr<float>(),
                  sums.mutable_data_ptr<float>(), out.mutable_data_ptr<float>()});
  const at::Tensor order = at::tensor(blocks, at::kLong);
  const auto seen = [&](const at::Tensor& cache) {
    return cache.index_select(0, order)
        .select(1, kv)
        .reshape({pages * 16, d})
        .narrow(0, std::max(from, hidden), to - std::max(from, hidden))
        .to(at::kDouble);
  };
  at::Tensor scores = at::mm(q.to(at::kDouble), seen(keys).t()) * static_cast<double>(0.4f);
  if (softcap > 0) scores = static_cast<double>(softcap) * at::tanh(scores / static_cast<double>(softcap));
  if (with_bias) scores = scores + bias.narrow(1, std::max(from, hidden), to - std::max(from, hidden)).to(at::kDouble);
  const at::Tensor top = scores.amax(1), weights = at::exp(scores - top.unsqueeze(1));
  const auto error = [](const at::Tensor& got, const at::Tensor& want) {
    return ((got.to(at::kDouble) - want).abs() / (1 + want.abs())).max().item<double>();
  };
  // the score that the others are relative to is the largest, or with rounded weights up to the next power of two
  const bool rounded = type == at::kBFloat16 && kernels.bf16_products;
  const at::Tensor above = largest.to(at::kDouble) - top;
  EXPECT_GT(above.min().item<double>(), -1e-5 * (1 + top.abs().max().item<double>()));
  EXPECT_LT(above.max().item<double>(), rounded ? std::log(2) + 1e-5 : 1e-5 * (1 + top.abs().max().item<double>()));
  const at::Tensor share = at::exp(above);
  EXPECT_LT(error(sums * share, weights.sum(1)), rounded ? 2e-3 : 2e-5);
  EXPECT_LT(error(out / sums.unsqueeze(1), at::mm(weights / weights.sum(1, true), seen(values))),
            rounded ? 4e-3 : 2e-5);
}

TEST_P(OfIsa, AttentionToASpanOfKeysIsThatOfFp64) {
  at::manual_seed(4);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t d : {1, 8, 20, 64, 80, 128}) {
      check_attend(*GetParam(), type, 1, d, 0, 1, 0, false);
      check_attend(*GetParam(), type, 4, d, 0, 45, 0, true);
      check_attend(*GetParam(), type, 3, d, 32, 32 + 100, 37, true);
      check_attend(*GetParam(), type, 2, d, 16, 16 + max_attend_keys, 0, false);
      check_attend(*GetParam(), type, 3, d, 32, 32 + 100, 37, false, 2.5f);
      check_attend(*GetParam(), type, 2, d, 16, 16 + max_attend_keys, 0, false, 50);
    }
  }
}

}  // namespace
}  // namespace pm::ops
