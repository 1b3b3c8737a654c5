// SPDX-License-Identifier: Apache-2.0
// Tests that ranks with and without work of their own run the same schedule, and that the next unit is gathered while
// one is in use.
#include <thread>

#include "tests/unit/worker/parallel/sharded_rank.h"

namespace pm::parallel {
namespace {

using namespace std::chrono_literals;

int64_t gathers(comm::Communicator& world) {
  for (const auto& count : world.counts())
    if (count.op == "all_gatherv") return count.calls;
  return 0;
}

struct Prefetching : testing::Test {
  const policy::Resolved resolved{policy::tiny_gpt2()};
  std::vector<at::Tensor> products = products_of(resolved);
  at::Tensor table = table_of(resolved);
  DType precision = DType::F32;
  void hold_as_int8() {
    make_finite(resolved);
    precision = DType::I8;
    products = products_of(resolved, precision);
    table = table_of(resolved, precision);
  }

  /// Uses the products `which`, in order.
  void use(ShardedRank& rank, bool look_up, const std::vector<size_t>& which, bool scores) const {
    if (look_up) {
      const at::Tensor ids = at::tensor({7, 100, 0, 7, 55}, at::kLong);
      EXPECT_TRUE(same(rank.table.look_up(ids), at::index_select(table, 0, ids)));
    }
    for (const size_t i : which) EXPECT_TRUE(same(rank.products[i].value(), products[i])) << i;
    if (scores) {
      EXPECT_TRUE(same(rank.scores.value(), table));
    }
  }

  void go(Strategy strategy, int n, int64_t buffer) const {
    const auto worlds = comm::in_process(n, 20s);
    const Plan plan = plan_of(resolved.model, strategy, n, buffer, precision);
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r) {
      threads.emplace_back([&, r] {
        ShardedRank rank(resolved, plan, worlds[static_cast<size_t>(r)]);
        for (int step = 0; step < 20; ++step) {
          const int role = (r + step) % 3;  // 0 uses all, 1 nothing, 2 some layers only
          rank.prefetcher.begin({role == 0 ? rank.all() : 0, role == 2 ? rank.units.stack_mask(0) : 0});
          if (role == 0) use(rank, true, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, true);
          if (role == 2) use(rank, step % 2 == 0, {0, 3, 5, 11}, false);
          rank.prefetcher.finish();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
};

TEST_F(Prefetching, EveryRankGetsTheWeightsThatItUses) {
  for (const int n : {1, 2, 3}) {
    go(Strategy::Sharded, n, 0);
    go(Strategy::Offload, n, 0);
  }
}

TEST_F(Prefetching, TilesToo) {
  for (const int n : {1, 3}) {
    go(Strategy::Sharded, n, 500);
    go(Strategy::Offload, n, 500);
  }
}

TEST_F(Prefetching, Int8RowsWithTheirScalesToo) {
  hold_as_int8();
  ASSERT_FALSE(same(products[0], products_of(resolved)[0]));
  for (const int n : {1, 2, 3}) {
    for (const int64_t buffer : {0, 500}) {
      go(Strategy::Sharded, n, buffer);
      go(Strategy::Offload, n, buffer);
    }
  }
}

TEST_F(Prefetching, LogitsMayBeComputedSeveralTimesInAStepAndOnOneRankMoreOftenThanOnAnother) {
  for (const Strategy strategy : {Strategy::Sharded, Strategy::Offload}) {
    const auto worlds = comm::in_process(2, 20s);
    const Plan plan = plan_of(resolved.model, strategy, 2, 500, precision);  // the head is gathered in several units
    const auto run = [&](size_t r, int64_t times) {
      ShardedRank rank(resolved, plan, worlds[r]);
      for (int step = 0; step < 5; ++step) {
        const StageMask logits = times > 0 ? rank.units.logits_mask(times) : 0;
        rank.prefetcher.begin({rank.all() | logits, rank.units.stack_mask(0)});
        use(rank, true, {0, 11}, true);  // the argmax
        for (int64_t i = 0; i < times; ++i) use(rank, false, {}, true);
        use(rank, true, {3}, false);  // the forward pass after it
        rank.prefetcher.finish();
      }
    };
    std::thread other([&] { run(1, 1); });
    run(0, 3);
    other.join();
  }
}

TEST_F(Prefetching, TheNextUnitIsGatheredWhileOneIsInUseAndNoneAfterIt) {
  const auto worlds = comm::in_process(2, 20s);
  const Plan plan = plan_of(resolved.model, Strategy::Sharded, 2);
  std::thread other([&] {
    ShardedRank rank(resolved, plan, worlds[1]);
    rank.prefetcher.begin({0});
    rank.prefetcher.finish();
  });
  ShardedRank rank(resolved, plan, worlds[0]);
  rank.prefetcher.begin({rank.units.stack_mask(0)});
  const int64_t before =
      1 + 2 * 3;  // agreement on the schedule; two look-ups that no rank requests take three all-gathers each
  rank.prefetcher.tiles(3, [&](int64_t, const layers::Weight&) {
    for (int i = 0; i < 200 && gathers(*worlds[0]) < before + 2; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(gathers(*worlds[0]), before + 2);
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(gathers(*worlds[0]), before + 2) << "both buffers are in use";
  });
  rank.prefetcher.finish();
  EXPECT_EQ(gathers(*worlds[0]), before + 3);
  other.join();
}

TEST_F(Prefetching, AWeightOutsideTheScheduleIsAnErrorAndNoWait) {
  const auto world = comm::in_process(1, 20s)[0];
  ShardedRank rank(resolved, plan_of(resolved.model, Strategy::Sharded, 1), world);
  EXPECT_THROW(rank.products[0].value(), std::logic_error) << "outside of a step";
  rank.prefetcher.begin({rank.units.stack_mask(0)});
  rank.products[4].value();
  EXPECT_THROW(rank.products[0].value(), std::logic_error) << "behind";
  EXPECT_THROW(rank.scores.value(), std::logic_error) << "not asked for";
  rank.prefetcher.finish();
}

TEST_F(Prefetching, ARankThatLeavesInTheMiddleOfAStepEndsTheOthers) {
  const auto worlds = comm::in_process(2, 20s);
  const Plan plan = plan_of(resolved.model, Strategy::Sharded, 2);
  std::thread leaver([&] {
    ShardedRank rank(resolved, plan, worlds[1]);
    rank.prefetcher.begin({rank.all()});
    rank.products[0].value();
  });
  ShardedRank rank(resolved, plan, worlds[0]);
  const auto begin = std::chrono::steady_clock::now();
  try {
    rank.prefetcher.begin({rank.all()});
    use(rank, false, {0, 4, 8}, true);
    rank.prefetcher.finish();
    ADD_FAILURE() << "the other rank has left";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 has left in the middle of a step"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  leaver.join();
}

}  // namespace
}  // namespace pm::parallel
