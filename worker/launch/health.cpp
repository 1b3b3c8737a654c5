// See health.h.
#include "worker/launch/health.h"

#include <algorithm>

namespace pm::launch {
namespace {

using comm::RankState;
using std::chrono::nanoseconds;

RankState state_of(comm::StatusBoard& board, int r) { return static_cast<RankState>(board.rank(r).state.load()); }

int64_t load_bytes(comm::StatusBoard& board) {
  int64_t sum = 0;
  for (int r = 0; r < board.size(); ++r) sum += board.rank(r).load_bytes.load();
  return sum;
}

/// A rank that waits in Starting or Ready for a loading one does not count as loading itself.
bool loading(comm::StatusBoard& board) {
  for (int r = 0; r < board.size(); ++r)
    if (state_of(board, r) == RankState::Loading) return true;
  return false;
}

nanoseconds since(int64_t ns, Time now) { return now.time_since_epoch() - nanoseconds(ns); }

std::string seconds(nanoseconds span) { return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(span).count()) + " s"; }

/// The rank that has read the smallest part of its bytes.
int slowest_loader(comm::StatusBoard& board) {
  int worst = 0;
  double least = 2;
  for (int r = 0; r < board.size(); ++r) {
    if (state_of(board, r) != RankState::Loading) continue;
    const double part = static_cast<double>(board.rank(r).load_bytes) / static_cast<double>(std::max<int64_t>(1, board.rank(r).load_total));
    if (part < least) worst = r, least = part;
  }
  return worst;
}

int slowest_stepper(comm::StatusBoard& board) {
  int worst = 0;
  for (int r = 1; r < board.size(); ++r)
    if (board.rank(r).steps.load() < board.rank(worst).steps.load()) worst = r;
  return worst;
}

}  // namespace

bool ready(comm::StatusBoard& board, Time now) {
  constexpr auto fresh = std::chrono::seconds(2);
  if (const int64_t ns = board.launcher_ns(); ns != 0 && since(ns, now) >= fresh) return false;
  for (int r = 0; r < board.size(); ++r)
    if (state_of(board, r) != RankState::Ready || since(board.rank(r).heartbeat_ns, now) >= fresh) return false;
  return true;
}

nanoseconds Stillness::observe(int64_t value, bool counting, Time now) {
  if (!counting) {
    value_.reset();   // counting starts afresh
    return {};
  }
  if (value_ != value) since_ = now;
  value_ = value;
  return now - since_;
}

bool Liveness::live(comm::StatusBoard& board, Time now) {
  const std::lock_guard lock(mutex_);
  if (const int64_t ns = board.launcher_ns(); ns != 0 && since(ns, now) >= stuck_launcher_) return false;
  return bytes_.observe(load_bytes(board), loading(board), now) < load_stall_;
}

std::optional<Stall> Watchdog::observe(comm::StatusBoard& board, Time now) {
  if (last_ && now - *last_ > std::chrono::seconds(1)) forgiven_until_ = now + limits_.frozen, steps_ = {}, bytes_ = {};
  last_ = now;
  const int64_t steps = board.rank(0).steps;
  const auto stuck = steps_.observe(steps, first_ == 0 && board.rank(0).open_requests > 0, now);
  const auto starved = bytes_.observe(load_bytes(board), loading(board), now);
  if (now < forgiven_until_) return std::nullopt;
  for (int r = first_; r < (count_ == 0 ? board.size() : first_ + count_); ++r) {
    const int64_t beat = board.rank(r).heartbeat_ns;
    if (beat != 0 && board.rank(r).failed == 0 && since(beat, now) > limits_.frozen)
      return Stall{r, "rank " + std::to_string(r) + " is frozen: no heartbeat for " + seconds(since(beat, now))};
  }
  if (stuck > limits_.hang) {
    const int r = slowest_stepper(board);
    return Stall{r, "no step for " + seconds(stuck) + " with " + std::to_string(board.rank(0).open_requests) + " open requests; rank " + std::to_string(r) +
                        " has done the fewest, " + std::to_string(board.rank(r).steps) + ", rank 0 " + std::to_string(steps)};
  }
  if (starved > limits_.load_stall) {
    const int r = slowest_loader(board);
    return Stall{r, "loading stands still for " + seconds(starved) + ": rank " + std::to_string(r) + " has read " + std::to_string(board.rank(r).load_bytes) +
                        " of " + std::to_string(board.rank(r).load_total) + " bytes"};
  }
  return std::nullopt;
}

}  // namespace pm::launch
