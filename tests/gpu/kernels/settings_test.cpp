// SPDX-License-Identifier: Apache-2.0
// The settings of torch that linking worker/ops/cuda/register.cpp changes.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace pm::ops::cuda {
namespace {

TEST(Settings, ProductsOfFp32HaveNoTf32InThemWhateverTheEnvironmentAsksFor) {
  ASSERT_STREQ(std::getenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"), "1") << "ctest sets it, as some images do";
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
}

TEST(Settings, ProductsInto16BitsAddThePartsOfSplitInputsInFp32) {
  using enum at::CuBLASReductionOption;
  EXPECT_EQ(at::globalContext().allowFP16ReductionCuBLAS(), DisallowReducedPrecisionAllowSplitK);
  EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(), DisallowReducedPrecisionAllowSplitK);
  EXPECT_FALSE(at::globalContext().allowFP16AccumulationCuBLAS());
}

}  // namespace
}  // namespace pm::ops::cuda
