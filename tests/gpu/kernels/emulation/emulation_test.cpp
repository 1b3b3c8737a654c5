// SPDX-License-Identifier: Apache-2.0
// Tests that the emulation detects missing, divergent or unmatched barriers, and memory read before it is written.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tests/gpu/kernels/emulation/emulation.h"
#include "worker/ops/cuda/linear/gemv.h"

namespace pm::emulation {
namespace {

std::string trouble_of(unsigned threads, const std::function<void()>& body) {
  try {
    launch(dim3(1), dim3(threads), 0, body);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

void add(int& to, int more) { __atomic_fetch_add(&to, more, __ATOMIC_RELAXED); }

/// Each thread reads what its neighbour wrote; returns how many read something else.
int read_neighbour(bool barrier) {
  int wrong = 0;
  launch(dim3(2), dim3(64), 0, [&] {
    PM_SHARED(int, values, 64);
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (barrier) __syncthreads();
    add(wrong, values[(threadIdx.x + 1) % 64] != static_cast<int>((threadIdx.x + 1) % 64));
  });
  return wrong;
}

TEST(Emulation, AMissingBarrierShows) {
  EXPECT_EQ(read_neighbour(true), 0);
#if !defined(PM_WITH_TSAN)  // which would rightly end the program
  EXPECT_GT(read_neighbour(false), 0);
#endif
}
TEST(Emulation, ThreadsThatComeToDifferentBarriersAreNamed) {
  const std::string trouble = trouble_of(64, [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();  // another line
  });
  EXPECT_NE(trouble.find("while others wait at that of line"), std::string::npos) << trouble;
}
TEST(Emulation, ABarrierThatSomeThreadsLeaveOutIsNamed) {
  const std::string trouble = trouble_of(64, [] {
    if (threadIdx.x != 5) __syncthreads();
  });
  EXPECT_NE(trouble.find("for ever"), std::string::npos) << trouble;
}
TEST(Emulation, AShuffleThatALaneLeavesOutIsNamed) {
  const std::string trouble = trouble_of(32, [] {
    if (threadIdx.x != 5) __shfl_sync(0xffffffffu, 1, 0);
  });
  EXPECT_NE(trouble.find("for ever"), std::string::npos) << trouble;
}
TEST(Emulation, GoesOnAfterAFailure) { EXPECT_EQ(read_neighbour(true), 0); }

TEST(Emulation, ShufflesAndVotesMoveWhatCudaSays) {
  int wrong = 0;
  launch(dim3(1), dim3(64), 0, [&] {
    const int lane = static_cast<int>(threadIdx.x % 32), first = static_cast<int>(threadIdx.x) - lane;
    const int mine = static_cast<int>(threadIdx.x);
    const bool right = __shfl_xor_sync(0xffffffffu, mine, 5) == first + (lane ^ 5) &&
                       __shfl_sync(0xffffffffu, mine, 7) == first + 7 &&
                       __shfl_up_sync(0xffffffffu, mine, 3) == (lane < 3 ? mine : mine - 3) &&
                       __shfl_sync(0xffffffffu, mine, 1, 8) == first + lane / 8 * 8 + 1 &&
                       __ballot_sync(0xffffffffu, lane % 2) == 0xaaaaaaaau;
    add(wrong, !right);
  });
  EXPECT_EQ(wrong, 0);
}
TEST(Emulation, SharedMemoryBeginsAsNoNumberInEveryBlock) {
  int numbers = 0;
  launch(dim3(4), dim3(1), 16, [&] {
    PM_SHARED(float, values, 4);
    PM_DYNAMIC_SHARED(more);
    for (int i = 0; i < 4; ++i) add(numbers, !std::isnan(values[i]) + !std::isnan(reinterpret_cast<float*>(more)[i]));
    for (int i = 0; i < 4; ++i) values[i] = reinterpret_cast<float*>(more)[i] = 1;
  });
  EXPECT_EQ(numbers, 0);
}
TEST(Emulation, ACopyIsThereOnlyWhenItHasBeenWaitedFor) {
  const float from[4] = {1, 2, 3, 4};
  float before = 0, after = 0, zero = 1;
  launch(dim3(1), dim3(1), 0, [&] {
    PM_SHARED(float, to, 8);
    to[0] = 5;
    copy_later(to, from, 16, true);
    commit_copies();
    copy_later(to + 4, nullptr, 16, false);
    commit_copies();
    before = to[0];
    wait_for_copies(1);
    after = to[0];
    wait_for_copies(0);
    zero = to[4];
  });
  EXPECT_TRUE(std::isnan(before));
  EXPECT_EQ(after, 1);
  EXPECT_EQ(zero, 0);
}
#if !defined(PM_WITH_TSAN)  // threads that note their order race, and are meant to
TEST(Emulation, TheOrderOfThreadsFollowsTheSeed) {
  const auto order = [](uint64_t value) {
    std::vector<int> order;
    seed(value);
    launch(dim3(1), dim3(32), 0, [&] { order.push_back(static_cast<int>(threadIdx.x)); });
    return order;
  };
  EXPECT_EQ(order(3), order(3));
  EXPECT_NE(order(3), order(4));
}
#endif

int launches(const std::function<void()>& body) {
  int count = 0;
  on_launch = [&](const std::function<void()>&) { ++count; };
  body();
  on_launch = nullptr;
  return count;
}
TEST(Launches, GemvReadsTheWeightsOnceForUpToFourRowsAndForUpToEightOnTensorCores) {
  using ops::cuda::Element;
  constexpr int64_t in = 64, out = 5;
  const std::vector<float> x(16 * in), w(out * in), scales(out * in);
  std::vector<float> y(16 * out);
  for (const auto& [type, compute, offset] : {std::tuple{Element::F32, Element::F32, 0},
                                              {Element::F16, Element::F16, 0},
                                              {Element::BF16, Element::BF16, 0},
                                              {Element::I8, Element::F32, 0},
                                              {Element::I8, Element::BF16, 0},
                                              {Element::BF16, Element::BF16, 1}}) {
    for (int64_t rows = 1; rows <= 9; ++rows) {
      const ops::cuda::Gemv p{.x = x.data(),
                              .x_stride = in,
                              .w = w.data() + offset,
                              .w_type = type,
                              .scales = scales.data(),
                              .scale_group = in,
                              .compute = compute,
                              .y = y.data(),
                              .rows = rows,
                              .in = in,
                              .out = out};
      const bool tensor_cores = compute != Element::F32 && offset == 0;
      EXPECT_EQ(ops::cuda::gemv_uses_tensor_cores(p), tensor_cores);
      const int64_t once = tensor_cores ? 8 : 4;
      EXPECT_EQ(launches([&] { ops::cuda::gemv(p, nullptr); }), (rows + once - 1) / once) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace pm::emulation
