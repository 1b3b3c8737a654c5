// SPDX-License-Identifier: Apache-2.0
// Makes groups of ranks for tests: threads of this process over any communicator.
#pragma once
#include <unistd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/shared_memory/shm_file.h"
#include "worker/comm/tcp/tcp_communicator.h"

namespace pm::comm::test {

using namespace std::chrono_literals;

/// Nodes has one rank on each node. Pairs has two, so that an odd count leaves the last node with one.
enum class Backend { InProcess, SharedMemory, Nodes, Pairs };
inline std::string name_of(Backend backend) {
  const char* names[] = {"in_process", "shared_memory", "nodes", "pairs_on_nodes"};
  return names[static_cast<int>(backend)];
}

/// A unique segment name, whose files are removed at the end.
class TestSegment {
 public:
  TestSegment() : name("parallelmodel-test-" + std::to_string(getpid()) + "-" + std::to_string(next())) {}
  ~TestSegment() {
    ShmFile::remove(name);
    ShmFile::remove(name + ".status");
  }
  TestSegment(const TestSegment&) = delete;
  TestSegment& operator=(const TestSegment&) = delete;
  const std::string name;

 private:
  static int next() {
    static std::atomic<int> count{0};
    return count++;
  }
};

/// The ranks of nodes that are segments of this process, connected over loopback.
struct Meshes {
  Meshes(int n, int per_node, int64_t bytes_per_rank = 64 << 10, std::vector<int64_t> replica_generations = {})
      : ports(static_cast<size_t>(n)) {
    for (int r = 0; r < n; ++r) {
      const int first = r / per_node * per_node;
      if (r == first) create_segment(segments.emplace_back(std::make_unique<TestSegment>())->name, n, bytes_per_rank);
      MeshSettings settings{
          .rank = r,
          .size = n,
          .first = first,
          .count = std::min(per_node, n - first),
          .replica_generation = replica_generations.empty() ? 7 : replica_generations[static_cast<size_t>(r)]};
      settings.token = [] { return Token{1, 2}; };
      settings.resolve_address = [this](int rank) {
        return ports[static_cast<size_t>(rank)] == 0
                   ? std::nullopt
                   : std::optional(Address{"127.0.0.1", ports[static_cast<size_t>(rank)]});
      };
      all.push_back(std::make_shared<Mesh>(std::move(settings), Segment::open(segments.back()->name, n)));
    }
  }
  const std::string& segment_of(int rank) const {
    return segments[static_cast<size_t>(rank / all[0]->settings().count)]->name;
  }
  void show(int rank) { ports[static_cast<size_t>(rank)] = all[static_cast<size_t>(rank)]->port(); }
  void connect_all() {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < all.size(); ++r) show(static_cast<int>(r));
    for (const auto& mesh : all) threads.emplace_back([&mesh] { mesh->connect_all(); });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::atomic<int>> ports;  ///< as resolve_address returns them
  std::vector<std::unique_ptr<TestSegment>> segments;
  std::vector<std::shared_ptr<Mesh>> all;
};

struct Group {
  Group(Backend backend, int n, std::chrono::milliseconds deadline = 20s, int64_t bytes_per_rank = 64 << 10) {
    if (backend == Backend::InProcess) {
      ranks = in_process(n, deadline);
    } else if (backend == Backend::SharedMemory) {
      create_segment(segment.name, n, bytes_per_rank);
      for (int r = 0; r < n; ++r) ranks.push_back(shared_memory(segment.name, r, n, deadline));
    } else {
      meshes = std::make_unique<Meshes>(n, backend == Backend::Nodes ? 1 : 2, bytes_per_rank);
      meshes->connect_all();
      for (int r = 0; r < n; ++r)
        ranks.push_back(tcp_communicator(meshes->all[static_cast<size_t>(r)], meshes->segment_of(r), deadline));
    }
  }
  /// Runs `body` once per rank, each in a thread; returns what each threw.
  std::vector<std::exception_ptr> run(const std::function<void(Communicator&)>& body) {
    std::vector<std::exception_ptr> thrown(ranks.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          body(*ranks[r]);
        } catch (...) {
          thrown[r] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return thrown;
  }
  /// Works as run(), for bodies that must not throw.
  void all(const std::function<void(Communicator&)>& body) {
    for (const auto& error : run(body))
      if (error) std::rethrow_exception(error);
  }
  TestSegment segment;
  std::unique_ptr<Meshes> meshes;
  std::vector<std::shared_ptr<Communicator>> ranks;
};

}  // namespace pm::comm::test
