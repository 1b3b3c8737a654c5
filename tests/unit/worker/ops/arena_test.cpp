// SPDX-License-Identifier: Apache-2.0
// Tests the accounting of the arena and of ATen's allocations to the byte.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/ops/arena.h"

namespace pm::ops {
namespace {

TEST(Arena, CountsWhatItHandsOut) {
  Arena arena;
  const at::Tensor a = arena.allocate({3, 5}, at::kFloat), b = arena.allocate({1 << 20}, at::kHalf);
  EXPECT_EQ(arena.bytes(), 64 + (2 << 20));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.const_data_ptr()) % 64, 0u);
}

TEST(Arena, TensorsOutliveIt) {
  at::Tensor tensor;
  {
    Arena arena;
    tensor = arena.allocate({100}, at::kFloat);
  }
  tensor.fill_(2);
  EXPECT_EQ(tensor.sum().item<float>(), 200.f);
}

TEST(CountingAllocator, FollowsAllocationAndRelease) {
  count_allocations();
  const int64_t before = allocated_bytes();
  reset_peak();
  {
    const at::Tensor tensor = at::empty({1000}, at::kFloat);
    EXPECT_GE(allocated_bytes() - before, 4000);
    EXPECT_LE(allocated_bytes() - before, 4000 + 64);  // malloc rounds up
  }
  EXPECT_EQ(allocated_bytes(), before);
  EXPECT_GE(peak_bytes() - before, 4000);
}

TEST(CountingAllocator, ServesOneDnnWhichAllocatesRaw) {
  count_allocations();
  const int64_t before = allocated_bytes();
  EXPECT_EQ(at::gelu(at::zeros({64, 64})).sum().item<float>(), 0.f);
  EXPECT_EQ(allocated_bytes(), before);
}

}  // namespace
}  // namespace pm::ops
