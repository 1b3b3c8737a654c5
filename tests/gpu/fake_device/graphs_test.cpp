// SPDX-License-Identifier: Apache-2.0
// Graph capture on the fake device: the rules of PyTorch's allocators and of cuBLAS that it has, and captures that keep
// to them (worker/ops/graph.h), also where they fail.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <thread>

#include "tests/gpu/fake_device/blas.h"
#include "tests/gpu/fake_device/capture_faults.h"
#include "tests/gpu/fake_device/graph_pools.h"
#include "tests/gpu/fake_device/graphs.h"
#include "tests/gpu/fake_device/memory.h"
#include "worker/ops/device_memory.h"
#include "worker/ops/graph.h"
#include "worker/ops/stream.h"

namespace pm::fake_device {
namespace {

using testing::HasSubstr;

const at::Device device(device_type, 0);
const c10::MempoolId_t id{0, 1'000'000};  // of no graph

at::Tensor ones(at::IntArrayRef shape, at::Device on = device) { return at::ones(shape, at::TensorOptions(on)); }

TEST(GraphPools, APoolWithoutAGraphIsNotCapturedIntoUntilItIsForgotten) {
  GraphPools pools;
  const auto begin = [&] { pools.begin_allocate_to_pool(id, [](c10::Stream) { return false; }); };
  begin();
  EXPECT_THROW(begin(), c10::Error) << "a capture allocates to it";
  pools.end_allocate_to_pool(id);
  EXPECT_THROW(pools.end_allocate_to_pool(id), c10::Error);
  pools.release_pool(id);
  pools.release_pool(id);
  EXPECT_THROW(begin(), c10::Error);
  EXPECT_THROW(pools.release_pool(id), c10::Error);
  pools.forget(id);
  begin();
}

TEST(GraphPools, AMemoryPoolLivesAsLongAsATensorInIt) {
  Memory& memory = Memory::instance();
  ops::release_unused(device);  // pools of other tests
  const size_t before = memory.graph_pools(0);
  const auto begin = [&] { memory.begin_allocate_to_pool(0, id, [](c10::Stream) { return true; }); };
  begin();
  at::Tensor live = ones({10}), freed = ones({10});
  freed.reset();
  memory.end_allocate_to_pool(0, id);
  memory.release_pool(0, id);
  ops::release_unused(device);
  EXPECT_EQ(memory.graph_pools(0), before + 1);
  EXPECT_THROW(begin(), c10::Error) << "it has memory and no graph";
  live.reset();
  const int64_t reserved = ops::device_memory(device).reserved;
  ops::release_unused(device);
  EXPECT_EQ(memory.graph_pools(0), before);
  EXPECT_LT(ops::device_memory(device).reserved, reserved);
  begin();
  memory.end_allocate_to_pool(0, id);
  memory.release_pool(0, id);
  ops::release_unused(device);
}

struct Captures : testing::Test {
  Captures() { register_graphs(); }
  const c10::InferenceMode inference;
};

TEST_F(Captures, AWorkspaceThatIsMadeInACaptureKeepsThePool) {
  const at::Device other(device_type, 1);  // without workspaces so far
  const c10::DeviceGuard here(other);
  {
    const auto pool = ops::GraphPool::make(other);
    const at::Tensor x = ones({2, 2}, other);
    at::Tensor y;
    pool->capture([&] { y = at::mm(x, x); });
  }
  ops::release_unused(other);
  EXPECT_EQ(Memory::instance().graph_pools(1), 1u) << "cuBLAS has a workspace in it";
}

TEST_F(Captures, RepeatOnNewValuesAndLeaveNothingBehind) {
  const int64_t before = ops::device_memory(device).reserved;
  const size_t workspaces_before = blas_workspaces(0);
  size_t workspaces = 0;
  for (int round = 0; round < 6; ++round) {  // more than there are streams
    const auto pool = ops::GraphPool::make(device);
    at::Tensor x = ones({2, 3}), w = ones({3, 2}), y;
    pool->run([&] { y = at::mm(x, w); });
    EXPECT_TRUE(at::equal(y.cpu(), at::full({2, 2}, 3.f)));
    if (round == 0) workspaces = blas_workspaces(0);
    std::unique_ptr<ops::Graph> graph = pool->capture([&] { y = at::mm(x + 1, w) * 2; });
    EXPECT_EQ(ops::current_stream(device).id(), 0) << "the default stream is current again";
    for (const float value : {1.f, 5.f}) {
      x.fill_(value);
      graph->replay();
      EXPECT_TRUE(at::equal(y.cpu(), at::full({2, 2}, 6 * (value + 1))));
    }
    const auto second = pool->capture([&] { y = x - 1; });
    second->replay();
    EXPECT_TRUE(at::equal(y.cpu(), at::full({2, 3}, 4.f)));
  }
  EXPECT_EQ(blas_workspaces(0), workspaces) << "all captures of a thread use one stream";
  ops::release_unused(device);
  EXPECT_EQ(Memory::instance().graph_pools(0), 0u);
  EXPECT_EQ(ops::device_memory(device).reserved,
            before + static_cast<int64_t>((workspaces - workspaces_before) * blas_workspace_bytes));
}

TEST_F(Captures, AnotherThreadCapturesOnAStreamOfItsOwn) {
  c10::StreamId mine = 0, theirs = 0;
  const auto stream_of_captures = [](c10::StreamId& stream) {
    ops::GraphPool::make(device)->run([&] { stream = ops::current_stream(device).id(); });
  };
  stream_of_captures(mine);
  std::thread([&] { stream_of_captures(theirs); }).join();
  EXPECT_NE(mine, theirs);
  EXPECT_NE(mine, 0);
  EXPECT_NE(theirs, 0);
}

/// Captures a body that fails, and checks that the next capture is as if nothing had been.
void expect_clean_failure(const std::function<void(at::Tensor&)>& body, const char* words) {
  const at::Tensor x = ones({2, 2});
  ops::GraphPool::make(device)->run([&] { at::mm(x, x); });
  ops::release_unused(device);
  const ops::DeviceMemory before = ops::device_memory(device);
  {
    const auto pool = ops::GraphPool::make(device);
    at::Tensor y;
    try {
      pool->capture([&] {
        y = at::mm(x, x);
        for (int i = 0; i < 8; ++i) y = y + 1;
        body(y);
      });
      ADD_FAILURE() << "the capture did not fail";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(words));
    }
    EXPECT_EQ(ops::current_stream(device).id(), 0);
    EXPECT_EQ(Memory::instance().captures_underway(0), 0u);
    EXPECT_EQ(Pinned::instance().captures_underway(), 0u);
    EXPECT_EQ(capture, nullptr);
  }
  ops::release_unused(device);
  EXPECT_EQ(Memory::instance().graph_pools(0), 0u);
  EXPECT_EQ(ops::device_memory(device).reserved, before.reserved);
  EXPECT_EQ(ops::device_memory(device).allocated, before.allocated);
  const auto pool = ops::GraphPool::make(device);
  const CaptureFault none;
  at::Tensor y;
  const auto graph = pool->capture([&] { y = x + 1; });
  graph->replay();
  EXPECT_TRUE(at::equal(y.cpu(), at::full({2, 2}, 2.f)));
}

TEST_F(Captures, AnOperationThatCannotBeCapturedEndsTheCaptureWhole) {
  expect_clean_failure([](at::Tensor& y) { y.sum().item(); }, "the host reads a value of the device");
  expect_clean_failure([](at::Tensor& y) { y.cpu(); }, "a copy between a device and pageable memory");
  expect_clean_failure(
      [](at::Tensor& y) {
        EXPECT_THROW(y.cpu(), c10::Error);
        EXPECT_THROW(y.add_(1), c10::Error) << "the capture is invalid";
        y = at::Tensor();
      },
      "due to a previous error during capture");
}

TEST_F(Captures, ALackOfMemoryEndsTheCaptureWhole) {
  const CaptureFault fault(0, "memory");
  expect_clean_failure([](at::Tensor&) {}, "fake out of memory for a graph");
}

TEST_F(Captures, AnInjectedInvalidOperationEndsTheCaptureWhole) {
  const CaptureFault fault(0, "operation");
  expect_clean_failure([](at::Tensor&) {}, "not permitted when stream is capturing");
}

TEST_F(Captures, AGraphThatCannotBeInstantiatedEndsTheCaptureWhole) {
  const CaptureFault fault(0, "instantiate");
  expect_clean_failure([](at::Tensor&) {}, "cannot be instantiated");
}

TEST_F(Captures, ErrorsOfTheBodyAreThrownOn) {
  const auto pool = ops::GraphPool::make(device);
  EXPECT_THROW(pool->capture([] { throw std::logic_error("a wrong program"); }), std::logic_error);
  EXPECT_EQ(Memory::instance().captures_underway(0), 0u);
  EXPECT_EQ(ops::current_stream(device).id(), 0);
}

}  // namespace
}  // namespace pm::fake_device
