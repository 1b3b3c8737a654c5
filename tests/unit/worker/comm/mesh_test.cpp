// SPDX-License-Identifier: Apache-2.0
// Tests how ranks of several nodes connect: late ranks, wrong ranks, untrusted peers, and a peer that closes or falls
// silent.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/unit/worker/comm/group.h"
#include "worker/base/error.h"

namespace pm::comm::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

Socket untrusted_peer(int port) {
  std::string why;
  Socket socket = connect_to("127.0.0.1", port, 2s, why);
  EXPECT_TRUE(socket.is_open()) << why;
  return socket;
}

/// Returns the text that a rank answers, or "closed".
std::string answer(const Socket& socket) {
  uint32_t length = 0;
  if (!receive_all(socket, std::as_writable_bytes(std::span(&length, 1)), 10s)) return "closed";
  std::string words(std::min<uint32_t>(length, 10'000), ' ');
  return receive_all(socket, std::as_writable_bytes(std::span(words)), 10s) ? words : "cut";
}

std::string answer_to(int port, const Hello& hello) {
  const Socket socket = untrusted_peer(port);
  send_all(socket, std::as_bytes(std::span(&hello, 1)), 2s);
  return answer(socket);
}

Hello right_hello() { return {.replica_generation = 7, .token = {1, 2}, .from = 1, .to = 0, .purpose = 0, .ranks = 2}; }

TEST(Mesh, ALateRankIsWaitedForAndUntrustedPeersDoNotDisturb) {
  Meshes meshes(2, 1);
  std::thread early([&] { meshes.all[0]->connect_all(); });
  std::vector<Socket> idlers;
  for (int i = 0; i < 100; ++i)
    idlers.push_back(untrusted_peer(meshes.all[0]->port()));  // more than may be pending; none of them sends anything
  std::mt19937 random(5);
  for (int i = 0; i < 30; ++i) {
    std::vector<std::byte> junk(random() % 300);
    for (auto& byte : junk) byte = static_cast<std::byte>(random());
    send_all(untrusted_peer(meshes.all[0]->port()), junk, 1s);
  }
  std::this_thread::sleep_for(300ms);
  meshes.show(0), meshes.show(1);
  meshes.all[1]->connect_all();
  early.join();
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      at::Tensor one = at::ones({5});
      tcp_communicator(meshes.all[static_cast<size_t>(r)], meshes.segment_of(r), 20s)->all_reduce(one);
      EXPECT_EQ(one[4].item<float>(), 2.f);
    });
  for (auto& rank : ranks) rank.join();
}

TEST(Mesh, AWrongHelloIsRefusedWithWhatWasExpected) {
  Meshes meshes(2, 1);
  const int port = meshes.all[0]->port();
  const Socket web = untrusted_peer(port);
  const std::string request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  send_all(web, std::as_bytes(std::span(request)), 2s);
  EXPECT_THAT(answer(web),
              HasSubstr("rank 0 of 2, replica generation 7, of a group of parallelmodel-worker processes"));
  const auto with = [](auto change) {
    Hello hello = right_hello();
    change(hello);
    return hello;
  };
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.replica_generation = 6; })),
              HasSubstr("replica generation 7, and you are of replica generation 6"));
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.token = {1, 3}; })), HasSubstr("do not know the group's token"));
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.to = 1; })), HasSubstr("you asked for rank 1"));
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.from = 5; })), HasSubstr("as rank 5"));
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.from = -3; })), HasSubstr("as rank -3"));
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.purpose = 77; })), HasSubstr("purpose 77"));
  EXPECT_THAT(answer_to(port, with([](Hello& h) { h.ranks = 3; })), HasSubstr("of 3"));
  const Socket first = untrusted_peer(port);
  const Hello hello = right_hello();
  send_all(first, std::as_bytes(std::span(&hello, 1)), 2s);
  EXPECT_EQ(answer(first), "");
  EXPECT_THAT(answer_to(port, hello), HasSubstr("rank 1 is connected already"));
}

TEST(Mesh, AHelloHasADeadline) {
  Meshes meshes(2, 1);
  const Socket slow = untrusted_peer(meshes.all[0]->port());
  const auto begin = Clock::now();
  const Hello hello = right_hello();
  send_all(slow, std::as_bytes(std::span(&hello, 1)).first(20), 1s);
  std::byte byte;
  EXPECT_FALSE(receive_all(slow, std::span(&byte, 1), 20s));
  EXPECT_LT(Clock::now() - begin, 9s);
  EXPECT_GT(Clock::now() - begin, 4s);
}

TEST(Mesh, AnotherReplicaGenerationIsRefused) {
  Meshes meshes(2, 1, 64 << 10, {8, 7});
  meshes.show(0), meshes.show(1);
  try {
    meshes.all[1]->connect_all();
    FAIL() << "they connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::RankLost);
    EXPECT_THAT(
        error.what(),
        HasSubstr("refused rank 1: this is rank 0 of 2, replica generation 8, and you are of replica generation 7"));
  }
}

TEST(Mesh, ConnectingEndsWithTheGroup) {
  Meshes meshes(3, 1);
  meshes.show(0), meshes.show(1);  // rank 2 never comes
  std::thread waiting([&] {
    try {
      meshes.all[0]->connect_all();
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("node 2 was never scheduled"));
    }
  });
  std::this_thread::sleep_for(50ms);
  abort_segment(meshes.segment_of(0), "node 2 was never scheduled");
  waiting.join();
}

TEST(Mesh, ARankThatEndsWithoutAReasonIsNoticedAtOnceByWaitingRanks) {
  Meshes meshes(2, 1);
  meshes.connect_all();
  const auto rank = tcp_communicator(meshes.all[0], meshes.segment_of(0), 60s);
  std::thread leaver([&] {
    std::this_thread::sleep_for(100ms);
    for (const Purpose purpose : {Purpose::Collective, Purpose::PointToPoint, Purpose::Control, Purpose::Abort})
      meshes.all[1]->connection(0, purpose).shut();  // as a killed process does
  });
  const auto begin = Clock::now();
  try {
    at::Tensor tensor = at::ones({4});
    rank->all_reduce(tensor);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::CommunicatorAborted);
    EXPECT_THAT(error.what(), HasSubstr("all_reduce on rank 0: rank 1 closed its connection"));
  }
  EXPECT_LT(Clock::now() - begin, 2s);
  leaver.join();
}

TEST(Mesh, AnAbortOnOneNodeReachesRanksThatSleepOnOthers) {
  Group group(Backend::Pairs, 4, 60s);
  std::thread aborter([&] {
    std::this_thread::sleep_for(100ms);
    abort_segment(group.meshes->segment_of(0), "RankLost: node 1 has been silent for 5 s");  // as a launcher does
  });
  const auto begin = Clock::now();
  const auto thrown = group.run([](Communicator& rank) {
    if (rank.rank() == 1) return;
    at::Tensor tensor = at::ones({4});
    if (rank.rank() == 0) rank.recv(tensor, 1);  // through the segment
    if (rank.rank() == 2) rank.recv(tensor, 0);  // over TCP
    if (rank.rank() == 3) rank.all_reduce(tensor);
  });
  aborter.join();
  EXPECT_LT(Clock::now() - begin, 3s);
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(static_cast<bool>(thrown[r]), r != 1);
    if (r == 1) continue;
    try {
      std::rethrow_exception(thrown[r]);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("node 1 has been silent for 5 s")) << "rank " << r;
    }
  }
}

}  // namespace
}  // namespace pm::comm::test
