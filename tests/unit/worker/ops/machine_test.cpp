// SPDX-License-Identifier: Apache-2.0
// What the worker says of machines on which it is slow or untested.
#include "worker/ops/cpu/machine.h"

#include <gtest/gtest.h>

#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::ops {
namespace {

TEST(Machine, ThatHasVectorKernelsIsNotMentioned) {
  EXPECT_EQ(machine_warning("x86_64", "avx2"), "");
  EXPECT_EQ(machine_warning("x86_64", "avx512"), "");
  EXPECT_EQ(machine_warning("x86_64", "amx"), "");
}

TEST(Machine, WithoutAvx2IsSlow) {
  EXPECT_EQ(machine_warning("x86_64", "any"),
            "This CPU lacks AVX2, FMA or F16C (x86-64-v3): generic kernels run, several times slower.");
}

TEST(Machine, OfAnotherArchitectureIsNamed) {
  EXPECT_EQ(machine_warning("aarch64", "any"),
            "This machine is aarch64, and ParallelModel is tested on x86-64 only: generic kernels run, slowly.");
}

TEST(Machine, KernelsHaveTheNamesThatTheWarningKnows) {
  const SupportedKernels& supported = supported_kernels();
  EXPECT_STREQ(supported.list[supported.count - 1]->name, "any");
}

}  // namespace
}  // namespace pm::ops
