// SPDX-License-Identifier: Apache-2.0
// Tests every operation between devices, for 1 to 4 ranks.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "tests/gpu/fake_device/graphs.h"
#include "tests/unit/worker/comm/nccl/ranks.h"

namespace pm::comm::test {
namespace {

at::Tensor random(std::vector<int64_t> sizes, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator).mul_(100).to(dtype);
}

class DeviceOperations : public testing::TestWithParam<int> {
 protected:
  int n = GetParam();
  DeviceRanks group{n};
};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceOperations, testing::Values(1, 2, 3, 4));

TEST_P(DeviceOperations, AllReduceSumsOrTakesTheLargestOnEveryRank) {
  for (const int64_t numel : {0, 1, 17, 4097, 100'003}) {
    at::Tensor sum = random({numel}, 7), largest = sum.clone();
    for (int r = 1; r < n; ++r)
      sum = sum + random({numel}, 7 + r), largest = at::maximum(largest, random({numel}, 7 + r));
    group.all([&](Communicator& rank, at::Device device) {
      at::Tensor mine = random({numel}, 7 + rank.rank()).to(device), other = mine.clone();
      rank.all_reduce(mine);
      rank.all_reduce(other, Op::Max);
      EXPECT_TRUE(at::equal(mine.cpu(), sum)) << numel;
      EXPECT_TRUE(at::equal(other.cpu(), largest)) << numel;
      rank.check();
    });
  }
}

TEST_P(DeviceOperations, EarlierDeviceWorkIsVisibleToLaterOperations) {
  group.all([&](Communicator& rank, at::Device device) {
    at::Tensor sum = at::ones({1000}, at::TensorOptions(device));
    for (int i = 0; i < 50; ++i) {
      rank.all_reduce(sum);
      sum = sum / n;
    }
    EXPECT_TRUE(at::equal(sum.cpu(), at::ones({1000})));
  });
}

TEST_P(DeviceOperations, GathersConcatenateUnevenRowsOfAnyType) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kByte, at::kBool}) {
    for (const std::vector<int64_t>& base :
         {std::vector<int64_t>{3, 0, 1, 5}, {0, 0, 0, 0}, {2, 2, 2, 2}, {6000, 1, 4001, 70}}) {
      const std::vector<int64_t> rows(base.begin(), base.begin() + n);
      std::vector<at::Tensor> parts;
      for (int r = 0; r < n; ++r) parts.push_back(random({rows[r], 2, 3}, 40 + r, dtype));
      const at::Tensor expected = at::cat(parts);
      group.all([&](Communicator& rank, at::Device device) {
        const at::Tensor mine = parts[static_cast<size_t>(rank.rank())].to(device);
        EXPECT_TRUE(at::equal(rank.all_gatherv(mine, rows).cpu(), expected)) << dtype;
        at::Tensor into = at::zeros(expected.sizes(), at::TensorOptions(dtype).device(device));
        int64_t first = 0;
        for (int r = 0; r < rank.rank(); ++r) first += rows[static_cast<size_t>(r)];
        at::Tensor own = into.narrow(0, first, mine.size(0));
        own.copy_(mine);
        rank.all_gatherv(own, rows, into);  // from its own range of the result
        EXPECT_TRUE(at::equal(into.cpu(), expected)) << dtype;
        const int root = n - 1;
        const at::Tensor gathered = rank.gatherv(mine, rows, root);
        EXPECT_EQ(gathered.defined(), rank.rank() == root);
        if (rank.rank() == root) {
          EXPECT_TRUE(at::equal(gathered.cpu(), expected)) << dtype;
        }
      });
    }
  }
}

TEST_P(DeviceOperations, BroadcastCopiesTheRootsTensor) {
  for (const int64_t numel : {0, 1, 300'000})
    for (int root = 0; root < n; ++root) {
      const at::Tensor expected = random({numel}, 5 + root, at::kBFloat16);
      group.all([&](Communicator& rank, at::Device device) {
        at::Tensor mine = (rank.rank() == root ? expected : at::zeros_like(expected)).to(device);
        rank.broadcast(mine, root);
        EXPECT_TRUE(at::equal(mine.cpu(), expected));
      });
    }
}

TEST_P(DeviceOperations, TransfersArriveInOrderBesideThoseOfCpuTensors) {
  group.all([&](Communicator& rank, at::Device device) {
    for (int64_t round = 0; round < 10; ++round) {
      const at::Tensor expected = round % 5 == 4 ? at::full({200'000}, round) : at::full({round, 3}, round);
      at::Tensor word = at::full({1}, round), tensor = expected.to(device);
      if (rank.rank() > 0) {
        word.zero_(), tensor = at::zeros_like(tensor);
        rank.recv(word, rank.rank() - 1);
        rank.recv(tensor, rank.rank() - 1);
      }
      EXPECT_EQ(word.item<int64_t>(), round);
      EXPECT_TRUE(at::equal(tensor.cpu(), expected));
      if (rank.rank() + 1 < n) rank.send(word, rank.rank() + 1), rank.send(tensor, rank.rank() + 1);
    }
    rank.barrier();
  });
}

TEST_P(DeviceOperations, SplitGroupsWorkBesideEachOther) {
  if (n < 2) return;
  const int half = n / 2;
  group.all([&](Communicator& world, at::Device device) {
    const bool second = world.rank() >= half;
    const auto part = second ? world.split(half, n - half) : world.split(0, half);
    for (int i = 0; i < 20; ++i) {
      at::Tensor mine = at::full({1000}, static_cast<float>(world.rank() + i), at::TensorOptions(device));
      part->all_reduce(mine);
      float sum = 0;
      for (int r = second ? half : 0; r < (second ? n : half); ++r) sum += static_cast<float>(r + i);
      ASSERT_EQ(mine.cpu()[999].item<float>(), sum);
      at::Tensor sent = at::full({1000}, i, at::TensorOptions(at::kLong).device(device));
      if (world.rank() == 0) world.send(sent, half);
      if (world.rank() == half) {
        sent.zero_();
        world.recv(sent, 0);
        ASSERT_EQ(sent.cpu()[999].item<int64_t>(), i);
      }
    }
  });
}

TEST_P(DeviceOperations, CountsCallsAndBytes) {
  group.all([&](Communicator& rank, at::Device device) {
    at::Tensor tensor = at::ones({10}, at::TensorOptions(device));
    rank.all_reduce(tensor);
    rank.all_reduce(tensor);
    for (const Communicator::Count& count : rank.counts())
      if (count.op == "all_reduce") {
        EXPECT_EQ(count.calls, 2);
        EXPECT_EQ(count.bytes, 80);
        EXPECT_GT(count.seconds, 0);
      }
  });
}

/// The capture of one rank may fail before that of another; the calls after it are compared all the same.
TEST_P(DeviceOperations, CapturedCallsAreNotComparedBetweenRanks) {
  if (n < 2) return;
  group.all([&](Communicator& rank, at::Device device) {
    at::Tensor sum = at::ones({10}, at::TensorOptions(device)), gathered = at::ones({3}, at::TensorOptions(device));
    const std::vector<int64_t> rows(static_cast<size_t>(n), 3);
    rank.all_reduce(sum);
    {
      const c10::StreamGuard own(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
      fake_device::Capture capture(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
      fake_device::capture = &capture;
      for (int i = 0; i <= rank.rank(); ++i) rank.all_reduce(sum);
      fake_device::capture = nullptr;
    }
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(rank.all_gatherv(gathered, rows).size(0), 3 * n);
      rank.all_reduce(gathered);
    }
    rank.check();
  });
}

TEST_P(DeviceOperations, RefusesTensorsItWouldMisread) {
  Communicator& rank = *group.ranks[0];
  const auto here = at::TensorOptions(group.devices[0]), elsewhere = at::TensorOptions(fake_device_at(3));
  at::Tensor half = at::ones({4}, here.dtype(at::kHalf)), strange = at::ones({4}, elsewhere);
  std::vector<int64_t> rows(static_cast<size_t>(n), 5);
  EXPECT_THROW(rank.all_reduce(half), std::invalid_argument);
  if (group.devices[0] != fake_device_at(3)) {
    EXPECT_THROW(rank.all_reduce(strange), std::invalid_argument);
  }
  EXPECT_THROW(rank.all_gatherv(half, rows), std::invalid_argument);
  EXPECT_THROW(rank.send(half, 0), std::invalid_argument);
}

}  // namespace
}  // namespace pm::comm::test
