// SPDX-License-Identifier: Apache-2.0
// Staging, loading and fetching on the fake device, whose asynchronous copies run as late as they can.
#include <gmock/gmock.h>

#include <thread>

#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/streams.h"
#include "tests/unit/worker/parallel/sharded_rank.h"
#include "worker/ops/device_memory.h"
#include "worker/ops/staging.h"

namespace pm {
namespace {

using namespace std::chrono_literals;

const at::Device device(at::DeviceType::PrivateUse1, 0);

int64_t allocated() { return ops::device_memory(device).allocated; }
int64_t peak() { return ops::device_memory(device).peak_allocated; }

void fill(std::span<std::byte> out, int seed) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(seed * 31 + static_cast<int>(i) * 7);
}

at::Tensor filled(int64_t bytes, int seed) {
  at::Tensor tensor = at::empty({bytes}, at::kByte);
  fill({static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<size_t>(bytes)}, seed);
  return tensor;
}

at::Tensor on_device(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions(type).device(device));
}

TEST(Staging, BytesArriveInOrderWhateverGoesRoundTheRing) {
  ops::Staging staging(device);
  std::vector<at::Tensor> targets;
  for (int i = 0; i < 20; ++i) {
    targets.push_back(on_device({1000 + i}, at::kByte));
    staging.put(targets.back(), at::kByte, [&](std::span<std::byte> out) { fill(out, i); });
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(at::equal(targets[static_cast<size_t>(i)].cpu(), filled(1000 + i, i))) << i;
  EXPECT_LE(staging.bytes(), 3 * 1019) << "as large as what went through, three times";
}

TEST(Staging, ACopyIsStillUnderWayWhenTheNextReadBegins) {
  ops::Staging staging(device);
  const at::Tensor first = on_device({64}, at::kByte), second = on_device({64}, at::kByte);
  staging.put(first, at::kByte, [](std::span<std::byte> out) { fill(out, 1); });
  const int64_t before = fake_device::Streams::instance().deferred_copies();
  staging.put(second, at::kByte, [](std::span<std::byte> out) { fill(out, 2); });
  EXPECT_EQ(fake_device::Streams::instance().deferred_copies(), before + 1) << "the copy is deferred";
}

TEST(Staging, StridedTargetsOfAnotherTypeGetWhatIsStored) {
  ops::Staging staging(device);
  at::Tensor whole = on_device({6, 8}, at::kHalf).zero_();
  const at::Tensor stored = at::arange(12, at::kFloat).view({4, 3});
  staging.put(whole.t().narrow(0, 2, 4).narrow(1, 1, 3), at::kFloat,
              [&](std::span<std::byte> out) { std::memcpy(out.data(), stored.const_data_ptr(), out.size()); });
  at::Tensor expected = at::zeros({6, 8}, at::kHalf);
  expected.t().narrow(0, 2, 4).narrow(1, 1, 3).copy_(stored);
  EXPECT_TRUE(at::equal(whole.cpu(), expected));
}

TEST(Staging, AReadThatFailsLeavesNothingRunningAndNoMemory) {
  const int64_t before = allocated();
  {
    const at::Tensor target = on_device({4096}, at::kByte), other = on_device({4096}, at::kByte);
    {
      ops::Staging staging(device);
      staging.put(target, at::kByte, [](std::span<std::byte> out) { fill(out, 1); });
      EXPECT_THROW(
          staging.put(other, at::kByte, [](std::span<std::byte>) { throw std::runtime_error("the disk is gone"); }),
          std::runtime_error);
    }  // a copy that came after this would read memory that is gone
    EXPECT_TRUE(at::equal(target.cpu(), filled(4096, 1)));
  }
  EXPECT_EQ(allocated(), before);
}

/// A GPT-2 whose matrices are stored transposed (conv1d layout), so that loading transposes them.
struct Loading : testing::Test {
  const policy::Resolved resolved{policy::tiny_gpt2()};

  void compare(int ranks, DType precision) {
    const Partition partition = make_partition(resolved.model.metadata, ranks, precision);
    for (int rank = 0; rank < ranks; ++rank) {
      layers::Loader there(*resolved.checkpoint, partition, rank, precision, {}, device),
          here(*resolved.checkpoint, partition, rank, precision);
      const int64_t before = allocated();
      ops::reset_peak(device);
      for (const policy::Param* param : resolved.model.params())
        EXPECT_TRUE(parallel::same(there.load(*param).cpu(), here.load(*param))) << param->path << " of rank " << rank;
      there.loaded();
      EXPECT_EQ(there.resident_bytes(), here.resident_bytes());
      EXPECT_EQ(there.read_bytes(), here.read_bytes()) << "no more than the rank's bytes are read";
      EXPECT_EQ(peak(), allocated()) << "nothing but the tensors themselves was ever on the device";
      EXPECT_GE(allocated() - before, there.resident_bytes());
    }
  }
};

TEST_F(Loading, EveryRankGetsTheBytesThatTheCpuGets) {
  for (const int ranks : {1, 2, 3}) compare(ranks, DType::F32);
  compare(2, DType::F16);
}

TEST_F(Loading, AFileThatEndsTooEarlyLeavesNothingOnTheDevice) {
  const int64_t before = allocated();
  {
    const Partition partition = make_partition(resolved.model.metadata, 1, DType::F32);
    layers::Loader loader(*resolved.checkpoint, partition, 0, DType::F32, {}, device);
    const auto params = resolved.model.params();
    loader.load(*params[0]);
    std::filesystem::resize_file(resolved.folder.path / "model.safetensors", 4096);
    EXPECT_THROW(for (const policy::Param* param : params) loader.load(*param), Error);
  }
  EXPECT_EQ(allocated(), before);
}

struct FetchingOnADevice : testing::Test {
  const policy::Resolved resolved{policy::tiny_gpt2()};
  const std::vector<at::Tensor> products = parallel::products_of(resolved);
  const at::Tensor table = parallel::table_of(resolved);

  Plan plan_of(Strategy strategy, Residency from, int ranks, int64_t buffer) const {
    Plan plan = parallel::plan_of(resolved.model, strategy, ranks, buffer);
    plan.gathering->from = from;
    return plan;
  }

  void go(Strategy strategy, Residency from, int n, int64_t buffer) const {
    const auto worlds = comm::in_process(n, 20s);
    const Plan plan = plan_of(strategy, from, n, buffer);
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r) {
      threads.emplace_back([&, r] {
        const at::Device own(at::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(r % 2));
        const c10::DeviceGuard here(own);
        parallel::ShardedRank rank(resolved, plan, worlds[static_cast<size_t>(r)], own);
        rank.loader.loaded();
        for (int step = 0; step < 12; ++step) {
          const bool all = (r + step) % 2 == 0;  // else nothing: the rank only joins the collectives
          rank.prefetcher.begin({all ? rank.all() : 0});
          if (all) {
            const at::Tensor ids = at::tensor({7, 100, 0, 7, 55}, at::kLong);
            EXPECT_TRUE(parallel::same(rank.table.look_up(ids.to(own)).cpu(), at::index_select(table, 0, ids)));
            for (size_t i = 0; i < products.size(); ++i)
              EXPECT_TRUE(parallel::same(rank.products[i].value().cpu(), products[i])) << i << " in step " << step;
            EXPECT_TRUE(parallel::same(rank.scores.value().cpu(), table));
          }
          rank.prefetcher.finish();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
};

TEST_F(FetchingOnADevice, WeightsOfAllRanksOfTheHostsMemoryAndOfFilesComeBeforeTheyAreUsed) {
  for (const int n : {1, 2, 3}) {
    for (const int64_t buffer : {0, 500}) {
      go(Strategy::Sharded, Residency::Device, n, buffer);
      go(Strategy::Offload, Residency::HostMemory, n, buffer);
      go(Strategy::Offload, Residency::File, n, buffer);
    }
  }
}

TEST_F(FetchingOnADevice, WhatTheHostKeepsIsNotOnTheDevice) {
  const auto world = comm::in_process(1, 20s)[0];
  const auto held = [&](Residency from) {
    const int64_t before = allocated();
    parallel::ShardedRank rank(resolved, plan_of(Strategy::Offload, from, 1, 0), world, device);
    rank.loader.loaded();
    return allocated() - before;
  };
  EXPECT_EQ(held(Residency::HostMemory), held(Residency::File));
  EXPECT_GT(held(Residency::Device), held(Residency::HostMemory));
}

TEST(DeviceMemory, IsWhatTheDeviceSaysLessWhatOthersHave) {
  const ops::DeviceMemory before = ops::device_memory(device);
  EXPECT_EQ(before.non_torch(), int64_t{256} << 20);
  ops::reset_peak(device);
  {
    const at::Tensor one = on_device({1 << 20}, at::kByte);
    EXPECT_EQ(ops::device_memory(device).allocated, before.allocated + (1 << 20));
    EXPECT_EQ(ops::device_memory(device).free, before.free - (1 << 20));
  }
  EXPECT_EQ(ops::device_memory(device).allocated, before.allocated);
  EXPECT_EQ(peak(), before.allocated + (1 << 20));
}

TEST(DeviceMemory, ALimitHoldsForThisProcess) {
  ASSERT_TRUE(ops::driver(device.type()).set_memory_limit(device, allocated() + (2 << 20)));
  EXPECT_THROW(on_device({4 << 20}, at::kByte), c10::OutOfMemoryError);
  on_device({1 << 20}, at::kByte);
  ops::driver(device.type()).set_memory_limit(device, int64_t{1} << 40);
  on_device({4 << 20}, at::kByte);
}

}  // namespace
}  // namespace pm
