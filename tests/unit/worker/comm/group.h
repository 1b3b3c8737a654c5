// Groups of ranks for tests: threads of this process over either communicator.
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
#include "worker/comm/shm_file.h"

namespace pm::comm::test {

using namespace std::chrono_literals;

enum class Backend { InProcess, SharedMemory };

/// A segment name of its own, removed at the end.
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

struct Group {
  Group(Backend backend, int n, std::chrono::milliseconds deadline = 20s, int64_t bytes_per_rank = 64 << 10) {
    if (backend == Backend::InProcess) {
      ranks = in_process(n, deadline);
      return;
    }
    create_segment(segment.name, n, bytes_per_rank);
    for (int r = 0; r < n; ++r) ranks.push_back(shared_memory(segment.name, r, n, deadline));
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
  /// As run(), for bodies that must not throw.
  void all(const std::function<void(Communicator&)>& body) {
    for (const auto& error : run(body))
      if (error) std::rethrow_exception(error);
  }
  TestSegment segment;
  std::vector<std::shared_ptr<Communicator>> ranks;
};

}  // namespace pm::comm::test
