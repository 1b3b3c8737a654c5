// SPDX-License-Identifier: Apache-2.0
// Tests every collective on each communicator, for 1 to 4 ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/worker/comm/group.h"

namespace pm::comm::test {
namespace {

at::Tensor random(std::vector<int64_t> sizes, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator).mul_(100).to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

at::Tensor sum_in_rank_order(int n, int64_t numel) {
  at::Tensor sum = random({numel}, 7);
  for (int r = 1; r < n; ++r) sum = sum + random({numel}, 7 + r);
  return sum;
}

class Collectives : public testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  Group group{std::get<0>(GetParam()), std::get<1>(GetParam())};
  int n = std::get<1>(GetParam());
};

std::string parameter_name(const testing::TestParamInfo<std::tuple<Backend, int>>& info) {
  return name_of(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Groups, Collectives,
                         testing::Combine(testing::Values(Backend::InProcess, Backend::SharedMemory, Backend::Nodes,
                                                          Backend::Pairs),
                                          testing::Values(1, 2, 3, 4)),
                         parameter_name);

TEST_P(Collectives, AllReduceSumsInRankOrderWithTheSameBitsOnEveryRank) {
  for (const int64_t numel : {1, 2, 15, 16, 17, 1000, 1024, 4095, 4097, 8192, 12345, 100'003, 5'000'000}) {
    const at::Tensor expected = sum_in_rank_order(n, numel);
    group.all([&](Communicator& rank) {
      at::Tensor mine = random({numel}, 7 + rank.rank());
      rank.all_reduce(mine);
      EXPECT_TRUE(same_bits(mine, expected)) << "rank " << rank.rank() << ", " << numel << " elements";
    });
  }
}

TEST_P(Collectives, AllReduceOfMaximumKeepsTheLargestAndNaN) {
  group.all([&](Communicator& rank) {
    at::Tensor mine = at::full({3, 700}, static_cast<float>(rank.rank()));
    if (rank.rank() == 0) mine[1][5] = 99.f;
    if (rank.rank() == rank.size() - 1) mine[2][6] = std::nanf("");
    rank.all_reduce(mine, Op::Max);
    EXPECT_EQ(mine[0][0].item<float>(), static_cast<float>(n - 1));
    EXPECT_EQ(mine[1][5].item<float>(), 99.f);
    EXPECT_TRUE(std::isnan(mine[2][6].item<float>()));
  });
}

TEST_P(Collectives, AllReduceOfNothingKeepsRanksInStep) {
  group.all([&](Communicator& rank) {
    at::Tensor nothing = at::empty({0, 5}), one = at::ones({1});
    rank.all_reduce(nothing);
    rank.all_reduce(one);
    EXPECT_EQ(one.item<float>(), static_cast<float>(n));
  });
}

TEST_P(Collectives, SplitGroupsWorkBesideEachOtherWithRanksOfTheirOwn) {
  if (n < 2) return;
  const int half = n / 2;
  group.all([&](Communicator& world) {
    const bool second = world.rank() >= half;
    const auto part = second ? world.split(half, n - half) : world.split(0, half);
    EXPECT_EQ(part->size(), second ? n - half : half);
    EXPECT_EQ(part->rank(), world.rank() - (second ? half : 0));
    for (int i = 0; i < 200; ++i) {
      at::Tensor mine = at::full({1000}, static_cast<float>(world.rank() + i));
      part->all_reduce(mine);
      float sum = 0;
      for (int r = second ? half : 0; r < (second ? n : half); ++r) sum += static_cast<float>(r + i);
      ASSERT_EQ(mine[999].item<float>(), sum);
      at::Tensor root = at::full({3}, static_cast<float>(world.rank()));
      part->broadcast(root, part->size() - 1);
      ASSERT_EQ(root[0].item<float>(), static_cast<float>(second ? n - 1 : half - 1));
      const std::vector<int64_t> rows(static_cast<size_t>(part->size()), 1);
      const at::Tensor all = part->all_gatherv(at::full({1, 2}, static_cast<float>(world.rank())), rows);
      ASSERT_EQ(all[0][1].item<float>(), static_cast<float>(second ? half : 0));
      // from rank 0 of the first group to that of the second, through the parent group
      at::Tensor sent = at::full({40'000}, static_cast<float>(i));
      if (world.rank() == 0) world.send(sent, half);
      if (world.rank() == half) {
        sent.zero_();
        world.recv(sent, 0);
        ASSERT_EQ(sent[39'999].item<float>(), static_cast<float>(i));
      }
    }
  });
}

TEST_P(Collectives, SplitRefusesRanksThatAreNotThere) {
  group.all([&](Communicator& world) {
    EXPECT_THROW(world.split(-1, 1), std::invalid_argument);
    EXPECT_THROW(world.split(0, n + 1), std::invalid_argument);
    EXPECT_THROW(world.split(world.rank() + 1, 1), std::invalid_argument);
  });
}

TEST_P(Collectives, ManySmallAllReducesStayInOrder) {
  group.all([&](Communicator& rank) {
    for (int i = 0; i < 2000; ++i) {
      at::Tensor mine = at::full({8}, static_cast<float>(i + rank.rank()));
      rank.all_reduce(mine);
      ASSERT_EQ(mine[7].item<float>(), static_cast<float>(n * i + n * (n - 1) / 2));
    }
  });
}

TEST_P(Collectives, GathersConcatenateUnevenRowsOfAnyType) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool}) {
    for (const std::vector<int64_t>& base :
         {std::vector<int64_t>{3, 0, 1, 5}, {0, 7, 2, 0}, {0, 0, 0, 0}, {6000, 1, 4001, 70}}) {
      const std::vector<int64_t> rows(base.begin(), base.begin() + n);
      std::vector<at::Tensor> parts;
      for (int r = 0; r < n; ++r) parts.push_back(random({rows[r], 2, 3}, 40 + r, dtype));
      const at::Tensor expected = at::cat(parts);
      group.all([&](Communicator& rank) {
        EXPECT_TRUE(same_bits(rank.all_gatherv(parts[rank.rank()], rows), expected)) << dtype;
        const int root = n - 1;
        const at::Tensor gathered = rank.gatherv(parts[rank.rank()], rows, root);
        EXPECT_EQ(gathered.defined(), rank.rank() == root);
        if (rank.rank() == root) {
          EXPECT_TRUE(same_bits(gathered, expected)) << dtype;
        }
      });
    }
  }
}

TEST_P(Collectives, BroadcastCopiesTheRootsTensorOfAnySize) {
  for (const int64_t numel : {0, 1, 1000, 300'000})
    for (int root = 0; root < n; ++root) {
      const at::Tensor expected = random({numel}, 5 + root, at::kBFloat16);
      group.all([&](Communicator& rank) {
        at::Tensor mine = rank.rank() == root ? expected.clone() : at::zeros({numel}, at::kBFloat16);
        rank.broadcast(mine, root);
        EXPECT_TRUE(same_bits(mine, expected));
      });
    }
}

TEST_P(Collectives, SendAndReceivePassTensorsAlongTheRanksInOrder) {
  group.all([&](Communicator& rank) {
    for (int64_t round = 0; round < 20; ++round) {
      at::Tensor tensor = round % 5 == 4 ? at::full({200'000}, round) : at::full({round, 3}, round);
      const at::Tensor expected = tensor.clone();
      if (rank.rank() > 0) {
        tensor.zero_();
        rank.recv(tensor, rank.rank() - 1);
      }
      EXPECT_TRUE(same_bits(tensor, expected));
      if (rank.rank() + 1 < rank.size()) rank.send(tensor, rank.rank() + 1);
    }
    rank.barrier();
  });
}

TEST_P(Collectives, MixedOperationsFollowEachOther) {
  std::vector<int64_t> rows(n, 2);
  group.all([&](Communicator& rank) {
    for (int i = 0; i < 300; ++i) {
      at::Tensor sum = at::ones({100 + i}), token = at::full({4}, rank.rank() == i % n ? i : -1, at::kLong);
      rank.all_reduce(sum);
      rank.broadcast(token, i % n);
      const at::Tensor all = rank.all_gatherv(token.narrow(0, 0, 2), rows);
      const at::Tensor one = rank.gatherv(token.narrow(0, 0, 2), rows, i % n);
      ASSERT_EQ(sum[99].item<float>(), static_cast<float>(n));
      ASSERT_EQ(all.sum().item<int64_t>(), 2 * n * i);
      if (one.defined()) {
        ASSERT_EQ(one.size(0), 2 * n);
      }
      if (i % 7 == 0) rank.barrier();
    }
  });
}

TEST_P(Collectives, CountsCallsBytesAndSeconds) {
  group.all([&](Communicator& rank) {
    at::Tensor tensor = at::ones({10});
    rank.all_reduce(tensor);
    rank.all_reduce(tensor);
    rank.barrier();
    for (const Communicator::Count& count : rank.counts()) {
      if (count.op == "all_reduce") {
        EXPECT_EQ(count.calls, 2) << count.op;
        EXPECT_EQ(count.bytes, 80);
        EXPECT_GT(count.seconds, 0);
      } else if (count.op == "barrier") {
        EXPECT_EQ(count.calls, 1);
        EXPECT_EQ(count.bytes, 0);
      } else {
        EXPECT_EQ(count.calls, 0) << count.op;
      }
    }
  });
}

TEST_P(Collectives, RefusesTensorsItWouldMisread) {
  Communicator& rank = *group.ranks[0];
  at::Tensor half = at::ones({4}, at::kHalf), strided = at::ones({4, 4}).t(), undefined;
  EXPECT_THROW(rank.all_reduce(half), std::invalid_argument);
  EXPECT_THROW(rank.all_reduce(strided), std::invalid_argument);
  EXPECT_THROW(rank.broadcast(undefined, 0), std::invalid_argument);
  std::vector<int64_t> rows(n, 5);
  EXPECT_THROW(rank.all_gatherv(half, rows), std::invalid_argument);
  EXPECT_THROW(rank.send(half, 0), std::invalid_argument);
}

}  // namespace
}  // namespace pm::comm::test
