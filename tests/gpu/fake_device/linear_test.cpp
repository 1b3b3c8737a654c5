// SPDX-License-Identifier: Apache-2.0
// Linear layers of the CUDA backend on the fake device with emulated kernels: results against fp64, and how many
// launches and products of ATen they take, each of which reads all weights.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string_view>

#include "contract/widened_tile.h"
#include "tests/gpu/fake_device/device.h"
#include "worker/ops/cuda/backend.h"
#include "worker/ops/device_memory.h"

namespace pm::emulation {
extern thread_local std::function<void(std::function<void()>)> on_launch;
}

namespace pm {
namespace {

const at::Device device(at::DeviceType::PrivateUse1, 0);

const ops::cuda::CudaBackend& backend() {
  static const ops::cuda::CudaBackend made({.address = &fake_device::host_address,
                                            .stream = [](at::Device there) -> ops::cuda::Stream {
                                              fake_device::synchronize_current_stream(there);
                                              return nullptr;
                                            },
                                            .multiprocessors = [](at::Device) { return 4; }});
  return made;
}

struct Counted {
  at::Tensor result;  ///< on the host
  int launches = 0;   ///< of our kernels
  int products = 0;   ///< by ATen on the device
  int others = 0;     ///< casts and sums by ATen on the device
};

thread_local int products = 0, others = 0;
std::unique_ptr<at::ObserverContext> count_product(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  const std::string_view name = call.name();
  if ((name == "aten::mm" || name == "aten::addmm") && !inputs.empty() && inputs[0].isTensor() &&
      inputs[0].toTensor().device() == device)
    ++products;
  const bool adds = name == "aten::add_", copies = name == "aten::copy_" && inputs[1].toTensor().device() == device;
  if ((adds || copies) && inputs[0].toTensor().device() == device) ++others;
  return nullptr;
}

Counted counted(const std::function<at::Tensor()>& body) {
  Counted counts;
  products = others = 0;
  const at::CallbackHandle counter =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&count_product).needsInputs(true));
  emulation::on_launch = [&](const std::function<void()>&) { ++counts.launches; };
  const at::Tensor result = body();
  emulation::on_launch = nullptr;
  at::removeCallback(counter);
  counts.products = products;
  counts.others = others;
  counts.result = result.cpu();
  return counts;
}

/// Returns the largest error relative to the largest expected value.
double error(const at::Tensor& got, const at::Tensor& expected) {
  return (got.to(at::kDouble) - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  return at::mm(x.to(at::kDouble), w.to(at::kDouble).t());
}

constexpr double tolerance = 4e-6;

/// Returns whether each number is the expected one rounded to its type, or where fp32 sums come near the middle of two
/// numbers the other of these.
bool is_rounded_once(const at::Tensor& got, const at::Tensor& expected) {
  const double unit = got.scalar_type() == at::kHalf ? 4.9e-4 : 3.91e-3;  // half of a place, relative
  const at::Tensor slack = expected.abs() * unit + expected.abs().max() * tolerance;
  return (got.to(at::kDouble) - expected).abs().le(slack).all().item<bool>();
}

TEST(CudaLinear, UpToEightRowsAreOneLaunchAndMoreRowsOneProductOfTheSameNumbers) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor w = at::randn({45, 160}).to(type), bias = at::randn({45}).to(type), x = at::randn({40, 160}),
                     expected = product(x.to(type), w) + bias.to(at::kDouble), there = w.to(device),
                     bias_there = bias.to(device);
    for (int64_t rows : {1, 2, 3, 4, 5, 8, 9, 32, 40}) {
      const at::Tensor some = x.narrow(0, 0, rows).to(device);
      const Counted counts = counted([&] { return backend().linear(some, there, bias_there, at::kFloat); });
      EXPECT_EQ(counts.launches, rows <= 8 ? 1 : 0) << rows << " rows";
      EXPECT_EQ(counts.products, rows <= 8 ? 0 : 1) << rows << " rows";
      EXPECT_LT(error(counts.result, expected.narrow(0, 0, rows)), tolerance) << rows << " rows";
      const Counted rounded = counted([&] { return backend().linear(some.to(type), there, bias_there, at::kFloat); });
      EXPECT_TRUE(at::equal(rounded.result, counts.result)) << "x may come in the type of the weights";
    }
  }
}

TEST(CudaLinear, Fp32WeightsStayFp32) {
  at::manual_seed(2);
  const at::Tensor w = at::randn({45, 160}), x = at::randn({6, 160});
  for (int64_t rows : {1, 4, 6}) {
    const at::Tensor some = x.narrow(0, 0, rows);
    EXPECT_LT(error(backend().linear(some.to(device), w.to(device), {}, at::kFloat).cpu(), product(some, w)),
              tolerance);
    const at::Tensor narrow = some.to(at::kHalf);
    EXPECT_LT(error(backend().linear(narrow.to(device), w.to(device), {}, at::kFloat).cpu(), product(narrow, w)),
              tolerance);
  }
}

TEST(CudaLinear, ResultsOf16BitsAreWrittenByTheProductAndRoundedOnce) {
  at::manual_seed(6);
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor w = at::randn({45, 160}).to(type), bias = at::randn({45}).to(type),
                     x = at::randn({40, 160}).to(type), there = w.to(device), bias_there = bias.to(device);
    for (bool biased : {true, false}) {
      const at::Tensor added = biased ? bias_there : at::Tensor();
      for (int64_t rows : {1, 4, 8, 9, 40}) {
        const at::Tensor some = x.narrow(0, 0, rows).to(device);
        const Counted counts = counted([&] { return backend().linear(some, there, added, type); });
        EXPECT_EQ(counts.result.scalar_type(), type);
        EXPECT_EQ(counts.launches, rows <= 8 ? 1 : 0) << rows << " rows";
        EXPECT_EQ(counts.products, rows <= 8 ? 0 : 1) << rows << " rows";
        EXPECT_EQ(counts.others, 0) << rows << " rows: neither a cast nor a sum";
        at::Tensor expected = product(x.narrow(0, 0, rows), w);
        if (biased) expected = expected + bias.to(at::kDouble);
        EXPECT_TRUE(is_rounded_once(counts.result, expected)) << rows << " rows of " << c10::toString(type);
      }
    }
  }
}

TEST(CudaLinear, ABiasOfAnotherTypeIsAddedBeforeTheResultIsRounded) {
  at::manual_seed(7);
  const at::Tensor w = at::randn({45, 160}).to(at::kBFloat16), bias = at::randn({45}),
                   x = at::randn({9, 160}).to(at::kBFloat16), expected = product(x, w) + bias.to(at::kDouble);
  for (int64_t rows : {1, 9}) {
    const at::Tensor some = x.narrow(0, 0, rows).to(device);
    const at::Tensor got = backend().linear(some, w.to(device), bias.to(device), at::kBFloat16).cpu();
    EXPECT_TRUE(is_rounded_once(got, expected.narrow(0, 0, rows))) << rows << " rows";
  }
}

/// An int8 matrix of random numbers and positive scales on the host.
ops::QuantizedMatrix int8_matrix(int64_t out, int64_t in, int64_t group, at::ScalarType compute_type) {
  return {at::randint(-127, 128, {out, in}, at::TensorOptions(at::kChar)),
          at::rand({out, (in + group - 1) / group}).add_(0.1).to(at::kBFloat16),
          {in, group},
          compute_type};
}

ops::QuantizedMatrix on_device(const ops::QuantizedMatrix& w) {
  return {w.codes.to(device), w.scales.to(device), w.layout, w.compute_type};
}

TEST(CudaLinear, Int8IsWidenedByOneLaunchForManyRowsAndReadOnceForEachEightRowsElse) {
  at::manual_seed(3);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t group : {20, 32, 80, 1000}) {
      const ops::QuantizedMatrix w = int8_matrix(450, 400, group, type), there = on_device(w);
      const at::Tensor bias = at::randn({450}), x = at::randn({70, 400}),
                       expected = product(x.to(type), ops::dequantized(w).to(type)) + bias.to(at::kDouble),
                       bias_there = bias.to(device);
      for (int64_t rows : {1, 3, 4, 5, 8, 9, 24, 25, 70}) {
        const at::Tensor some = x.narrow(0, 0, rows).to(device);
        const Counted counts = counted([&] { return backend().quantized_linear(some, there, bias_there, at::kFloat); });
        const bool few = rows <= (type == at::kFloat ? 4 : 24) && group != 20;  // gemv() takes even groups only
        EXPECT_EQ(counts.launches, few ? (rows + 7) / 8 : 1) << rows << " rows, groups of " << group;
        EXPECT_EQ(counts.products, few ? 0 : 1) << rows << " rows, groups of " << group;
        EXPECT_LT(error(counts.result, expected.narrow(0, 0, rows)), tolerance)
            << rows << " rows, groups of " << group << ", " << c10::toString(type);
      }
    }
  }
}

TEST(CudaLinear, Int8ResultsOf16BitsAreRoundedOnce) {
  at::manual_seed(8);
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    for (int64_t group : {20, 32}) {
      const ops::QuantizedMatrix w = int8_matrix(450, 400, group, type), there = on_device(w);
      const at::Tensor bias = at::randn({450}).to(type), x = at::randn({30, 400}).to(type),
                       expected = product(x, ops::dequantized(w).to(type)) + bias.to(at::kDouble),
                       bias_there = bias.to(device);
      for (int64_t rows : {1, 8, 30}) {
        const at::Tensor some = x.narrow(0, 0, rows).to(device);
        const Counted counts = counted([&] { return backend().quantized_linear(some, there, bias_there, type); });
        EXPECT_EQ(counts.result.scalar_type(), type);
        EXPECT_EQ(counts.launches, 1) << rows << " rows, groups of " << group;
        EXPECT_EQ(counts.others, 0) << rows << " rows: neither a cast nor a sum";
        EXPECT_TRUE(is_rounded_once(counts.result, expected.narrow(0, 0, rows))) << rows << " rows";
      }
    }
  }
}

TEST(CudaLinear, Int8WithScalesBehindEachRow) {
  at::manual_seed(4);
  for (int64_t in : {512, 96, 90}) {  // rows of 544, 102 and 96 bytes
    const ops::QuantizedMatrix apart = int8_matrix(45, in, 32, at::kBFloat16);
    const at::Tensor bytes =
        at::cat({apart.codes.view(at::kByte), apart.scales.view(at::kByte)}, 1).contiguous().to(device);
    const ops::QuantizedMatrix w = ops::quantized_rows(bytes, {in, 32}, at::kBFloat16);
    const at::Tensor x = at::randn({30, in}),
                     expected = product(x.to(at::kBFloat16), ops::dequantized(apart).to(at::kBFloat16));
    for (int64_t rows : {1, 7, 30})
      EXPECT_LT(error(backend().quantized_linear(x.narrow(0, 0, rows).to(device), w, {}, at::kFloat).cpu(),
                      expected.narrow(0, 0, rows)),
                tolerance)
          << rows << " rows of " << in;
  }
}

TEST(CudaLinear, ALargeQuantizedMatrixIsWidenedByTilesOfAtLeast32MiB) {
  at::manual_seed(5);
  constexpr int64_t in = 8192, out = 8200, rows = 25;
  const ops::QuantizedMatrix w = int8_matrix(out, in, 32, at::kBFloat16), there = on_device(w);
  const at::Tensor x = at::randn({rows, in}).to(at::kBFloat16), x_there = x.to(device);
  ops::reset_peak(device);
  const int64_t before = ops::device_memory(device).allocated;
  const at::Tensor y = backend().quantized_linear(x_there, there, {}, at::kFloat);
  const int64_t beside = ops::device_memory(device).peak_allocated - before - rows * out * 4;
  EXPECT_GE(beside, widened_tile_bytes);
  EXPECT_LE(beside, 2 * widened_tile_bytes + widened_tile_row_multiple * in * 2);
  EXPECT_LT(error(y.cpu(), product(x, ops::dequantized(w).to(at::kBFloat16))), tolerance);
  const Counted counts = counted([&] { return backend().quantized_linear(x_there, there, {}, at::kFloat); });
  EXPECT_EQ(counts.launches, 4);
  EXPECT_EQ(counts.products, 4);
}

TEST(WidenedTiles, HaveAtLeast32MiBAndCoverAllRows) {
  for (int64_t row_bytes : {2, 200, 8192, 57344, 1 << 20}) {
    for (int64_t rows : {1, 63, 4096, 6144, 28672, 128256}) {
      const int64_t tile = widened_tile_rows(rows, row_bytes);
      EXPECT_GE(tile, 1);
      EXPECT_LE(tile, rows);
      EXPECT_TRUE(tile == rows || tile * row_bytes >= widened_tile_bytes) << rows << " x " << row_bytes;
      EXPECT_TRUE(tile == rows || tile % widened_tile_row_multiple == 0);
      EXPECT_LT(tile * row_bytes, 2 * widened_tile_bytes + widened_tile_row_multiple * row_bytes);
    }
  }
}

}  // namespace
}  // namespace pm
