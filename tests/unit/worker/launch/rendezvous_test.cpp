// SPDX-License-Identifier: Apache-2.0
// Tests launchers of several nodes: they connect, mirror their ranks, forward failures and stops, and refuse untrusted
// peers.
#include "worker/launch/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <thread>

#include "worker/base/error.h"
#include "worker/comm/tcp/socket.h"
#include "worker/launch/node_link.h"
#include "worker/launch/status_json.h"

namespace pm::launch {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

int free_port() { return comm::port_of(comm::listen_on(0)); }

bool until(const std::function<bool()>& true_, std::chrono::milliseconds patience = 10s) {
  for (const auto end = Clock::now() + patience; Clock::now() < end; std::this_thread::sleep_for(5ms))
    if (true_()) return true;
  return false;
}

/// One node of a group of `ranks`.
struct Node {
  Node(int here, int count, int ranks, int port, int64_t replica_generation = 3, const std::string& plan = "p")
      : status_table(comm::StatusTable::in_process(ranks)), here(here) {
    others.emplace(Nodes{count, here, "127.0.0.1", port, replica_generation, plan}, status_table, 1s);
    others->start();
  }
  /// Returns the next event of any kind.
  PeerEvent next_event() {
    std::vector<PeerEvent> all;
    EXPECT_TRUE(until([&] { return !(all = others->take_events()).empty(); })) << "no event on node " << here;
    return all.empty() ? PeerEvent{} : all.front();
  }
  void beat(int rank) {
    status_table->rank(rank).heartbeat_ns = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
  }
  std::shared_ptr<comm::StatusTable> status_table;
  std::optional<Rendezvous> others;
  int here;
};

TEST(Partition, IsEqualInWholeRanksAndTheLastMayHaveFewer) {
  const auto counts = [](int ranks, int nodes) {
    std::vector<int> out;
    for (int node = 0; node < nodes; ++node) out.push_back(partition(ranks, nodes, node).count);
    return out;
  };
  EXPECT_EQ(counts(4, 2), (std::vector<int>{2, 2}));
  EXPECT_EQ(counts(3, 2), (std::vector<int>{2, 1}));
  EXPECT_EQ(counts(5, 2), (std::vector<int>{3, 2}));
  EXPECT_EQ(counts(7, 3), (std::vector<int>{3, 3, 1}));
  EXPECT_FALSE(can_partition(9, 4)) << "3, 3, 3 and none";
  EXPECT_FALSE(can_partition(2, 3));
  EXPECT_TRUE(can_partition(1, 1));
}

TEST(Rendezvous, NodesConnectInAnyOrderAndEveryStatusTableShowsAllRanks) {
  const int port = free_port();
  std::vector<std::unique_ptr<Node>> nodes;
  for (const int here : {2, 0, 1}) {
    nodes.push_back(std::make_unique<Node>(here, 3, 5, port));
    std::this_thread::sleep_for(100ms);
  }
  for (auto& node : nodes) {
    const Slice mine = partition(5, 3, node->here);
    for (int r = mine.first; r < mine.first + mine.count; ++r) {
      comm::RankStatus& rank = node->status_table->rank(r);
      node->beat(r);
      rank.load_bytes = 100 + r, rank.load_total = 200 + r, rank.steps = 7 * r, rank.measured.weights = 1000 + r;
      rank.port = 40'000 + r;
      rank.state = static_cast<uint32_t>(comm::RankState::Ready);
    }
  }
  for (auto& node : nodes) {
    for (int r = 0; r < 5; ++r) {
      comm::RankStatus& rank = node->status_table->rank(r);
      ASSERT_TRUE(until([&] {
        return rank.state == static_cast<uint32_t>(comm::RankState::Ready) && rank.port == 40'000 + r;
      })) << "rank "
          << r << " on node " << node->here;
      EXPECT_EQ(rank.load_bytes, 100 + r);
      EXPECT_EQ(rank.load_total, 200 + r);
      EXPECT_EQ(rank.steps, 7 * r);
      EXPECT_EQ(rank.measured.weights, 1000 + r);
      const double age = 1e-9 * static_cast<double>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count() -
                                                    rank.heartbeat_ns);
      EXPECT_GE(age, 0);
      EXPECT_LT(age, 10);
      const Slice mine = partition(5, 3, node->here);
      if (r < mine.first || r >= mine.first + mine.count) {
        EXPECT_STREQ(rank.address, "127.0.0.1");
      }
    }
    EXPECT_TRUE(until([&] { return node->others->connected(); }));
    EXPECT_NE(node->status_table->token()[0], 0u);
    EXPECT_EQ(node->status_table->token()[0], nodes[0]->status_table->token()[0]);
  }
}

TEST(Rendezvous, AFailureReachesAllNodesAndAStopNodeZero) {
  const int port = free_port();
  Node a(0, 3, 3, port), b(1, 3, 3, port), c(2, 3, 3, port);
  ASSERT_TRUE(until([&] { return a.others->connected() && b.others->connected() && c.others->connected(); }));
  b.others->request_stop();
  EXPECT_EQ(a.next_event().kind, PeerEvent::Kind::Stop);
  b.others->send_failure({1, Reason::RankLost, "rank 1 died of signal 9 (Killed)", 5});
  for (Node* node : {&a, &c}) {
    const PeerEvent event = node->next_event();
    EXPECT_EQ(event.kind, PeerEvent::Kind::Failed);
    EXPECT_EQ(event.failure.rank, 1);
    EXPECT_EQ(event.failure.reason, Reason::RankLost);
    EXPECT_EQ(event.failure.message, "rank 1 died of signal 9 (Killed)");
    EXPECT_EQ(event.failure.exit_code, 5);
  }
}

TEST(Rendezvous, ANodeThatSaysGoodbyeIsNotLost) {
  const int port = free_port();
  Node a(0, 2, 2, port);
  {
    Node b(1, 2, 2, port);
    ASSERT_TRUE(until([&] { return a.others->connected() && b.others->connected(); }));
  }
  const PeerEvent event = a.next_event();
  EXPECT_EQ(event.kind, PeerEvent::Kind::Left);
  EXPECT_EQ(event.node, 1);
  std::this_thread::sleep_for(200ms);
  EXPECT_TRUE(a.others->take_events().empty());
}

TEST(Rendezvous, AnotherReplicaGenerationOrPlanOrNumberOfNodesIsRefused) {
  const int port = free_port();
  Node a(0, 3, 3, port);
  Node old(1, 3, 3, port, 2);
  EXPECT_THAT(
      old.next_event().failure.message,
      HasSubstr(
          "refuses node 1 (rank 1): this is node 0 of 3, replica generation 3, and you are of replica generation 2"));
  Node other_plan(1, 3, 3, port, 3, "q");
  EXPECT_THAT(other_plan.next_event().failure.message, HasSubstr("your plan differs"));
  Node of_two(1, 2, 3, port);
  EXPECT_THAT(of_two.next_event().failure.message, HasSubstr("you are node 1 of 2"));
  Node right(1, 3, 3, port);
  ASSERT_TRUE(until([&] { return right.others->connected(); }));
  Node twice(1, 3, 3, port);
  EXPECT_THAT(twice.next_event().failure.message, HasSubstr("node 1 is connected already"));
  Node newer(2, 3, 3, port, 4);  // the next generation of node 0 may listen on the port soon
  std::this_thread::sleep_for(1500ms);
  EXPECT_TRUE(newer.others->take_events().empty());
  EXPECT_TRUE(a.others->take_events().empty()) << "none of this is a loss";
}

/// A peer that speaks the protocol of launchers.
struct Actor {
  Actor(int port, const json& hello) : link(connected(port), true) {
    link.allow(1 << 20);
    link.send(hello);
    link.pump();
  }
  static comm::Socket connected(int port) {
    std::string why;
    return comm::connect_to("127.0.0.1", port, 2s, why);
  }
  std::optional<json> hear() {
    std::optional<json> message;
    until([&] {
      const bool open = link.pump();
      message = link.next();
      return message || !open;
    });
    return message;
  }
  NodeLink link;
};

json hello() { return {{"hello", {{"replicaGeneration", 3}, {"nodes", 2}, {"node", 1}, {"plan", "p"}}}}; }

TEST(Rendezvous, ANodeThatClosesOrFallsSilentOrSendsInvalidMessagesIsLost) {
  for (const std::string how : {"closes", "silent", "nonsense"}) {
    const int port = free_port();
    Node a(0, 2, 3, port);
    auto actor = std::make_unique<Actor>(port, hello());
    ASSERT_TRUE(actor->hear()->contains("welcome"));
    const auto begin = Clock::now();
    if (how == "closes") actor.reset();
    if (how == "nonsense") actor->link.send({{"ranks", {1, "two"}}}), actor->link.pump();
    const PeerEvent event = a.next_event();
    EXPECT_EQ(event.kind, PeerEvent::Kind::Failed);
    EXPECT_EQ(event.failure.rank, 2);
    EXPECT_THAT(event.failure.message, HasSubstr("node 1 (rank 2) at 127.0.0.1 is lost: "));
    EXPECT_EQ(event.failure.reason, how == "silent" ? Reason::NodeLost : Reason::RankLost);
    if (how == "silent") {
      EXPECT_THAT(event.failure.message, HasSubstr("silent for 1 s"));
      EXPECT_GT(Clock::now() - begin, 900ms);
    } else {
      EXPECT_LT(Clock::now() - begin, 900ms);
    }
  }
}

TEST(Rendezvous, ANodeReportsItsOwnRanksOnly) {
  const int port = free_port();
  Node a(0, 2, 3, port);
  Actor actor(port, hello());
  ASSERT_TRUE(actor.hear()->contains("welcome"));
  json ranks = json::array();
  for (const int r : {0, 1, 2, 3, -1, 1'000'000})
    ranks.push_back({{"rank", r}, {"state", 2}, {"age", 0}, {"steps", 5}, {"port", 99'999}, {"loadBytes", -7}});
  actor.link.send({{"ranks", ranks}});
  actor.link.pump();
  ASSERT_TRUE(until([&] { return a.status_table->rank(2).steps == 5; }));
  EXPECT_EQ(a.status_table->rank(0).steps, 0);
  EXPECT_EQ(a.status_table->rank(1).steps, 0);
  EXPECT_EQ(a.status_table->rank(2).port, 0) << "no such port";
  EXPECT_EQ(a.status_table->rank(2).load_bytes, 0);
}

TEST(Rendezvous, UntrustedPeersAreRefusedAndDisturbNoNode) {
  const int port = free_port();
  Node a(0, 2, 2, port);
  std::mt19937 random(17);
  std::vector<comm::Socket> idlers;
  for (int i = 0; i < 200; ++i) {
    idlers.push_back(Actor::connected(port));
    std::vector<std::byte> junk(random() % 2000);
    for (auto& byte : junk) byte = static_cast<std::byte>(random());
    if (i % 2) comm::send_all(idlers.back(), junk, 100ms);
  }
  for (const json& wrong :
       {json{{"hello", "me"}}, json{{"hello", {{"replicaGeneration", "x"}}}}, json{{"ranks", json::array()}},
        json{{"stop", true}}, json{{"hello", {{"node", -5}}}},
        json{{"hello", {{"replicaGeneration", 3}, {"nodes", 2}, {"node", 1}, {"plan", std::string(5000, 'p')}}}}}) {
    Actor actor(port, wrong);
    const auto said = actor.hear();
    EXPECT_TRUE(!said || said->contains("refused")) << *said;
  }
  Node b(1, 2, 2, port);
  EXPECT_TRUE(until([&] { return a.others->connected() && b.others->connected(); }));
  EXPECT_TRUE(a.others->take_events().empty());
}

/// A launcher connects while an untrusted peer before it is disconnected; one between them only idles.
TEST(Rendezvous, AnUntrustedPeerThatLeavesDoesNotDisconnectALauncher) {
  constexpr int count = 24;
  const int port = free_port();
  Node a(0, count, count, port);
  std::vector<std::unique_ptr<Actor>> come;
  for (int node = 1; node < count; ++node) {
    const comm::Socket untrusted = Actor::connected(port), idler = Actor::connected(port);
    const std::string junk = "GET / HTTP/1.1";
    comm::send_all(untrusted, std::as_bytes(std::span(junk)), 100ms);
    come.push_back(std::make_unique<Actor>(
        port, json{{"hello", {{"replicaGeneration", 3}, {"nodes", count}, {"node", node}, {"plan", "p"}}}}));
    const auto said = come.back()->hear();
    ASSERT_TRUE(said && said->contains("welcome")) << "node " << node;
  }
  EXPECT_TRUE(until([&] { return a.others->connected(); }));
}

TEST(Rendezvous, APortInUseIsReportedAtOnce) {
  const int port = free_port();
  Node a(0, 2, 2, port);
  try {
    Node b(0, 2, 2, port);
    FAIL() << "both listen";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::PortInUse);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(port)));
  }
}

TEST(Rendezvous, ANodeThatNeverFindsNodeZeroKeepsTryingAndStopsAtOnce) {
  const auto begin = Clock::now();
  {
    Node b(1, 2, 2, free_port());
    std::this_thread::sleep_for(1500ms);
    EXPECT_FALSE(b.others->connected());
    EXPECT_TRUE(b.others->take_events().empty());
  }
  EXPECT_LT(Clock::now() - begin, 4s);
}

TEST(Mirror, ARankThatHasFailedStaysSo) {
  const auto status_table = comm::StatusTable::in_process(2);
  status_table->fail(1, Reason::RankLost, "gone", 5);
  apply_rank_json({{"rank", 1}, {"state", 2}, {"age", 0}}, *status_table, "a");
  EXPECT_EQ(status_table->rank(1).state, static_cast<uint32_t>(comm::RankState::Failed));
}

}  // namespace
}  // namespace pm::launch
