// SPDX-License-Identifier: Apache-2.0
// Implements the status table. The file holds a header, then one block per rank.
#include "worker/comm/membership/status_table.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/utf8.h"
#include "worker/base/error.h"
#include "worker/comm/shared_memory/shm_file.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {
namespace {

struct alignas(64) Header {
  std::atomic<int64_t> launcher_heartbeat_ns{0};
  std::array<std::atomic<uint64_t>, 2> token{};
};

RankStatus& at(RankStatus* first, int n, int r) {
  if (r < 0 || r >= n)
    throw std::out_of_range("status of rank " + std::to_string(r) + " in a group of " + std::to_string(n));
  return first[r];
}

class LocalStatusTable final : public StatusTable {
 public:
  explicit LocalStatusTable(int n) : ranks_(n) {}
  int size() const override { return static_cast<int>(ranks_.size()); }
  RankStatus& rank(int r) override { return at(ranks_.data(), size(), r); }
  std::atomic<int64_t>& launcher_heartbeat_ns() override { return header_.launcher_heartbeat_ns; }
  std::array<std::atomic<uint64_t>, 2>& token() override { return header_.token; }

 private:
  Header header_;
  std::vector<RankStatus> ranks_;
};

class SharedStatusTable final : public StatusTable {
 public:
  SharedStatusTable(ShmFile file, int n) : file_(std::move(file)), size_(n) {
    header_ = std::launder(reinterpret_cast<Header*>(file_.bytes().data()));
    ranks_ = std::launder(reinterpret_cast<RankStatus*>(file_.bytes().data() + sizeof(Header)));
  }
  static size_t bytes(int n) { return sizeof(Header) + sizeof(RankStatus) * static_cast<size_t>(n); }
  int size() const override { return size_; }
  RankStatus& rank(int r) override { return at(ranks_, size_, r); }
  std::atomic<int64_t>& launcher_heartbeat_ns() override { return header_->launcher_heartbeat_ns; }
  std::array<std::atomic<uint64_t>, 2>& token() override { return header_->token; }

 private:
  ShmFile file_;
  int size_;
  Header* header_;
  RankStatus* ranks_;
};

void require_size(int n) {
  if (n < 1) throw std::invalid_argument("a status table for " + std::to_string(n) + " ranks; expected at least 1");
}

template <size_t N>
void write_text(char (&to)[N], const std::string& text) {
  const std::string_view stored = base::truncate_utf8(text, N - 1);
  std::memcpy(to, stored.data(), stored.size());
  to[stored.size()] = 0;
}

// Blocks are read where another process wrote them, and a fresh file is all zeros.
static_assert(SharedValue::is_always_lock_free && sizeof(SharedValue) == sizeof(int64_t));
static_assert(std::is_standard_layout_v<RankStatus> && std::is_trivially_destructible_v<RankStatus>);
static_assert(sizeof(RankStatus) % alignof(RankStatus) == 0 && sizeof(Header) % alignof(RankStatus) == 0);
static_assert(sizeof(MeasuredMemory<SharedValue>) == 5 * sizeof(int64_t));
static_assert(sizeof(DeviceUsage<SharedValue>) == 5 * sizeof(int64_t));
static_assert(sizeof(GraphUsage<SharedValue>) == 3 * sizeof(int64_t));

constexpr uint32_t failure_recorded = 1, failure_in_writing = 2;

}  // namespace

MeasuredMemory<int64_t> snapshot(const MeasuredMemory<SharedValue>& memory) {
  return {.weights = memory.weights,
          .kv = memory.kv,
          .activations = memory.activations,
          .communicator = memory.communicator,
          .runtime = memory.runtime};
}

DeviceUsage<int64_t> snapshot(const DeviceUsage<SharedValue>& usage) {
  return {.total = usage.total,
          .free = usage.free,
          .reserved = usage.reserved,
          .allocated = usage.allocated,
          .communicators = usage.communicators};
}

GraphUsage<int64_t> snapshot(const GraphUsage<SharedValue>& usage) {
  return {.captured = usage.captured, .replayed = usage.replayed, .bytes = usage.bytes};
}

void report_capture_failure(RankStatus& status, const std::string& reason) {
  if (status.capture_failed != 0) return;
  write_text(status.capture_failure, reason);
  status.capture_failed.store(1, std::memory_order_release);
}

std::shared_ptr<StatusTable> StatusTable::in_process(int n) {
  require_size(n);
  return std::make_shared<LocalStatusTable>(n);
}

std::shared_ptr<StatusTable> StatusTable::create(const std::string& segment, int n) {
  require_size(n);
  return std::make_shared<SharedStatusTable>(ShmFile::create(segment + ".status", SharedStatusTable::bytes(n)), n);
}

std::shared_ptr<StatusTable> StatusTable::open(const std::string& segment, int n) {
  require_size(n);
  ShmFile file = ShmFile::open(segment + ".status");
  if (file.bytes().size() != SharedStatusTable::bytes(n))
    throw Error(Reason::RankLost, "status table of " + segment + " has " + std::to_string(file.bytes().size()) +
                                      " bytes, expected " + std::to_string(SharedStatusTable::bytes(n)) + " for " +
                                      std::to_string(n) + " ranks");
  return std::make_shared<SharedStatusTable>(std::move(file), n);
}

void StatusTable::fail(int r, Reason reason, const std::string& message, int exit_code) {
  RankStatus& status = rank(r);
  uint32_t fresh = 0;
  if (status.failed.compare_exchange_strong(fresh, failure_in_writing)) {
    write_text(status.reason, name_of(reason));
    write_text(status.message, message);
    status.exit_code = exit_code;
  } else {  // a writer that died while writing must not hide the failure
    const auto deadline = Clock::now() + std::chrono::milliseconds(10);
    while (status.failed.load() == failure_in_writing && Clock::now() < deadline) relax();
  }
  status.state.store(static_cast<uint32_t>(RankState::Failed));
  status.failed.store(failure_recorded, std::memory_order_release);
}

struct Heartbeat::Impl {
  std::shared_ptr<StatusTable> status_table;
  int rank = 0;
  std::mutex mutex;
  std::condition_variable ended;
  bool end = false;
  std::thread thread;

  void beat() {
    status_table->rank(rank).heartbeat_ns.store(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  }
  void run() {
    std::unique_lock lock(mutex);
    do beat();
    while (!ended.wait_for(lock, std::chrono::milliseconds(200), [&] { return end; }));
  }
};

Heartbeat::Heartbeat(std::shared_ptr<StatusTable> status_table, int rank) : impl_(std::make_unique<Impl>()) {
  impl_->status_table = std::move(status_table);
  impl_->rank = rank;
  impl_->status_table->rank(rank).pid.store(getpid());
  impl_->beat();
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->end = true;
  }
  impl_->ended.notify_all();
  impl_->thread.join();
}

}  // namespace pm::comm
