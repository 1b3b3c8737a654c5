// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "controller/runtime/work_queue.h"

using namespace pm::k8s;
using namespace std::chrono_literals;

namespace {
Key key(int i) { return {"n", std::to_string(i)}; }
Clock::Steady at(int seconds) { return Clock::Steady(std::chrono::seconds(seconds)); }
}  // namespace

TEST(QueueCore, AKeyWaitsOnce) {
  QueueCore queue;
  queue.add(key(1), at(0));
  queue.add(key(1), at(1));
  EXPECT_EQ(queue.take(at(2))->since, at(0));
  EXPECT_FALSE(queue.take(at(2)));
}

TEST(QueueCore, AKeyWantedWhileItRunsRunsOnceMore) {
  QueueCore queue;
  queue.add(key(1), at(0));
  queue.take(at(0));
  queue.add(key(1), at(1));
  queue.add(key(1), at(1));
  EXPECT_FALSE(queue.take(at(1))) << "never twice at once";
  queue.done(key(1), at(2));
  EXPECT_EQ(queue.take(at(2))->key, key(1));
  queue.done(key(1), at(3));
  EXPECT_FALSE(queue.take(at(3)));
}

TEST(QueueCore, TheEarliestDelayWins) {
  QueueCore queue;
  queue.add_at(key(1), at(10));
  queue.add_at(key(1), at(5));
  queue.add_at(key(1), at(20));
  EXPECT_EQ(queue.next_due(), at(5));
  queue.advance(at(4));
  EXPECT_FALSE(queue.take(at(4)));
  queue.advance(at(5));
  EXPECT_TRUE(queue.take(at(5)));
  EXPECT_FALSE(queue.next_due());
}

TEST(QueueCore, ARunCancelsTheOldDelay) {
  QueueCore queue;
  queue.add_at(key(1), at(10));
  queue.add(key(1), at(0));
  queue.take(at(0));
  EXPECT_FALSE(queue.next_due());
  queue.add_at(key(1), at(60));
  queue.done(key(1), at(1));
  EXPECT_EQ(queue.next_due(), at(60)) << "a delay asked for by the run stays";
}

TEST(QueueCore, FailuresAreCountedPerKeyUntilForgotten) {
  QueueCore queue;
  EXPECT_EQ(queue.fail(key(1)), 0);
  EXPECT_EQ(queue.fail(key(1)), 1);
  EXPECT_EQ(queue.fail(key(2)), 0);
  queue.forget(key(1));
  EXPECT_EQ(queue.fail(key(1)), 0);
}

/// Compares the queue with a model of plain sets under random operations: it hands out the same keys in the same order.
TEST(QueueCore, BehavesAsItsModelUnderRandomOperations) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    QueueCore queue;
    std::vector<int> order;        // model: waiting, in order
    std::set<int> running, again;  // running; wanted again while running
    std::map<int, int> delayed;    // key -> due
    int now = 0;
    const auto want = [&](int k) {
      if (running.contains(k))
        again.insert(k);
      else if (std::find(order.begin(), order.end(), k) == order.end())
        order.push_back(k);
    };
    for (int step = 0; step < 300; ++step) {
      const int k = pick(6);
      switch (pick(5)) {
        case 0:
          queue.add(key(k), at(now));
          want(k);
          break;
        case 1: {
          const int due = now + 1 + pick(10);
          queue.add_at(key(k), at(due));
          if (!delayed.contains(k) || delayed[k] > due) delayed[k] = due;
          break;
        }
        case 2: {
          ++now;
          queue.advance(at(now));
          std::vector<std::pair<int, int>> due;
          for (const auto& [d, when] : delayed)
            if (when <= now) due.push_back({when, d});
          std::sort(due.begin(), due.end());
          for (const auto& [when, d] : due) {
            delayed.erase(d);
            want(d);
          }
          break;
        }
        case 3: {
          const auto taken = queue.take(at(now));
          ASSERT_EQ(taken.has_value(), !order.empty());
          if (!taken) break;
          ASSERT_EQ(taken->key, key(order.front()));
          ASSERT_FALSE(running.contains(order.front()));
          running.insert(order.front());
          delayed.erase(order.front());
          order.erase(order.begin());
          break;
        }
        case 4:
          queue.done(key(k), at(now));
          if (running.erase(k) && again.erase(k)) order.push_back(k);
          break;
      }
      ASSERT_EQ(queue.waiting(), order.size());
      ASSERT_EQ(queue.running().size(), running.size());
    }
  }
}

namespace {
struct WorkQueueTest : testing::Test {
  prometheus::Registry registry;
  ControllerMetrics metrics{registry, "test"};
  WorkQueue queue{metrics};
};
}  // namespace

TEST_F(WorkQueueTest, NeverRunsAKeyTwiceAtOnceAndLosesNone) {
  constexpr int key_count = 5, add_count = 4000;
  std::atomic<int> inside[key_count] = {}, wanted[key_count] = {}, seen[key_count] = {};
  std::stop_source stop;
  std::vector<std::jthread> threads;
  for (int w = 0; w < 4; ++w) {
    threads.emplace_back([&] {
      while (const auto taken = queue.take(stop.get_token())) {
        const int k = std::stoi(taken->name);
        ASSERT_EQ(++inside[k], 1);
        seen[k] = wanted[k].load();
        --inside[k];
        queue.done(*taken);
      }
    });
  }
  for (int i = 0; i < add_count; ++i) {
    ++wanted[i % key_count];
    queue.add(key(i % key_count));
  }
  const auto caught_up = [&] {
    for (int k = 0; k < key_count; ++k)
      if (seen[k] != wanted[k]) return false;
    return true;
  };
  while (!caught_up()) std::this_thread::yield();  // ends only if the last addition of every key was seen
  stop.request_stop();
}

TEST_F(WorkQueueTest, AStopWakesAWaitingWorker) {
  std::stop_source stop;
  std::jthread worker([&] { EXPECT_FALSE(queue.take(stop.get_token())); });
  stop.request_stop();
}

TEST_F(WorkQueueTest, AnEarlierDelayWakesAWorkerThatWaitsForALaterOne) {
  queue.add_after(key(1), 1h);
  std::jthread worker([&] { EXPECT_EQ(queue.take({}), key(2)); });
  queue.add_after(key(2), 1ms);
}

TEST_F(WorkQueueTest, ADelayedKeyDoesNotWaitForAWorkerThatIsBusy) {
  std::stop_source stop;
  std::atomic<bool> release{false}, second{false};
  std::vector<std::jthread> workers;
  for (int w = 0; w < 2; ++w) {
    workers.emplace_back([&] {
      while (const auto taken = queue.take(stop.get_token())) {
        if (*taken == key(2)) second = true;
        while (*taken == key(1) && !release) std::this_thread::sleep_for(1ms);
        queue.done(*taken);
      }
    });
  }
  queue.add_after(key(2), 20ms);  // one worker waits for it, and is then the one that may get the next
  queue.add(key(1));
  while (!second) std::this_thread::sleep_for(1ms);  // never ends if no other worker takes over the wait
  release = true;
  stop.request_stop();
}

TEST_F(WorkQueueTest, RepeatedAdditionsCountOnce) {
  queue.add(key(1));
  queue.add(key(1));
  EXPECT_EQ(metrics.queue_adds.Value(), 1);
}

TEST_F(WorkQueueTest, BackOffGrowsPerKey) {
  EXPECT_EQ(queue.add_backed_off(key(1)), 5ms);
  EXPECT_EQ(queue.add_backed_off(key(1)), 10ms);
  EXPECT_EQ(queue.add_backed_off(key(2)), 5ms);
  queue.forget(key(1));
  EXPECT_EQ(queue.add_backed_off(key(1)), 5ms);
  EXPECT_EQ(metrics.queue_retries.Value(), 4);
}
