// See status.h. One file: a header, then one block per rank.
#include "worker/comm/status.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "worker/base/error.h"
#include "worker/comm/door.h"
#include "worker/comm/shm_file.h"

namespace pm::comm {
namespace {

struct alignas(64) Header {
  std::atomic<int64_t> launcher_ns{0};
  std::array<std::atomic<uint64_t>, 2> token{};
};

RankStatus& at(RankStatus* first, int n, int r) {
  if (r < 0 || r >= n) throw std::out_of_range("status of rank " + std::to_string(r) + " in a group of " + std::to_string(n));
  return first[r];
}

class LocalBoard final : public StatusBoard {
 public:
  explicit LocalBoard(int n) : ranks_(n) {}
  int size() const override { return static_cast<int>(ranks_.size()); }
  RankStatus& rank(int r) override { return at(ranks_.data(), size(), r); }
  std::atomic<int64_t>& launcher_ns() override { return header_.launcher_ns; }
  std::array<std::atomic<uint64_t>, 2>& token() override { return header_.token; }

 private:
  Header header_;
  std::vector<RankStatus> ranks_;
};

class SharedBoard final : public StatusBoard {
 public:
  SharedBoard(ShmFile file, int n) : file_(std::move(file)), size_(n) {
    header_ = std::launder(reinterpret_cast<Header*>(file_.bytes().data()));
    ranks_ = std::launder(reinterpret_cast<RankStatus*>(file_.bytes().data() + sizeof(Header)));
  }
  static size_t bytes(int n) { return sizeof(Header) + sizeof(RankStatus) * static_cast<size_t>(n); }
  int size() const override { return size_; }
  RankStatus& rank(int r) override { return at(ranks_, size_, r); }
  std::atomic<int64_t>& launcher_ns() override { return header_->launcher_ns; }
  std::array<std::atomic<uint64_t>, 2>& token() override { return header_->token; }

 private:
  ShmFile file_;
  int size_;
  Header* header_;
  RankStatus* ranks_;
};

void require_size(int n) {
  if (n < 1) throw std::invalid_argument("a status board for " + std::to_string(n) + " ranks; expected at least 1");
}

template <size_t N>
void write_text(char (&to)[N], const std::string& text) {
  size_t length = std::min(text.size(), N - 1);
  if (length < text.size())   // never half a UTF-8 character
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

constexpr uint32_t failure_recorded = 1, failure_in_writing = 2;

}  // namespace

std::shared_ptr<StatusBoard> StatusBoard::in_process(int n) {
  require_size(n);
  return std::make_shared<LocalBoard>(n);
}

std::shared_ptr<StatusBoard> StatusBoard::create(const std::string& segment, int n) {
  require_size(n);
  return std::make_shared<SharedBoard>(ShmFile::create(segment + ".status", SharedBoard::bytes(n)), n);
}

std::shared_ptr<StatusBoard> StatusBoard::open(const std::string& segment, int n) {
  require_size(n);
  ShmFile file = ShmFile::open(segment + ".status");
  if (file.bytes().size() != SharedBoard::bytes(n))
    throw Error(ErrorKind::RankLost, "RankLost", "status board of " + segment + " has " + std::to_string(file.bytes().size()) + " bytes, expected " +
                                                     std::to_string(SharedBoard::bytes(n)) + " for " + std::to_string(n) + " ranks");
  return std::make_shared<SharedBoard>(std::move(file), n);
}

void StatusBoard::fail(int r, const std::string& reason, const std::string& message, int exit_code) {
  RankStatus& status = rank(r);
  uint32_t fresh = 0;
  if (status.failed.compare_exchange_strong(fresh, failure_in_writing)) {
    write_text(status.reason, reason);
    write_text(status.message, message);
    status.exit_code = exit_code;
  } else {   // a writer that died in the middle must not hide the failure
    const auto patience = Clock::now() + std::chrono::milliseconds(10);
    while (status.failed.load() == failure_in_writing && Clock::now() < patience) relax();
  }
  status.state.store(static_cast<uint32_t>(RankState::Failed));
  status.failed.store(failure_recorded, std::memory_order_release);
}

struct Heartbeat::Impl {
  std::shared_ptr<StatusBoard> board;
  int rank = 0;
  std::mutex mutex;
  std::condition_variable ended;
  bool end = false;
  std::thread thread;

  void beat() { board->rank(rank).heartbeat_ns.store(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count()); }
  void run() {
    std::unique_lock lock(mutex);
    do beat();
    while (!ended.wait_for(lock, std::chrono::milliseconds(200), [&] { return end; }));
  }
};

Heartbeat::Heartbeat(std::shared_ptr<StatusBoard> board, int rank) : impl_(std::make_unique<Impl>()) {
  impl_->board = std::move(board);
  impl_->rank = rank;
  impl_->board->rank(rank).pid.store(getpid());
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
