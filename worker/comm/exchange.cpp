// See exchange.h.
#include "worker/comm/exchange.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <thread>
#include <vector>

#include "worker/base/error.h"

namespace pm::comm {
namespace {

constexpr auto look_up = std::chrono::milliseconds(100);           ///< how long a sleeper may miss an abort that closes no connection of its own
constexpr auto reason_on_its_way = std::chrono::milliseconds(200);  ///< a connection has ended: the reason may follow on another

}  // namespace

Exchange::Exchange(AbortNote& note, int rank, int waiters, std::chrono::milliseconds deadline, std::function<void(const std::string&)> end_group)
    : note_(note), rank_(rank), deadline_(deadline), spin_(waiters), end_group_(std::move(end_group)) {}

void Exchange::fail(const std::string& what) {
  end_group_(what);
  throw Error(ErrorKind::RankLost, "CommunicatorAborted", what);
}

void Exchange::ended(const char* op, int peer) {
  const auto patience = Clock::now() + reason_on_its_way;
  while (!note_.aborted() && Clock::now() < patience) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (note_.aborted()) throw_aborted(op, rank_, note_);
  fail(std::string(op) + " on rank " + std::to_string(rank_) + ": rank " + std::to_string(peer) + " closed its connection");
}

/// Moves what goes at once; whether anything did.
bool Exchange::advance(const char* op, Move& move, std::string (*describe)(uint64_t)) {
  if (move.finished()) return false;
  uint64_t& word = move.out ? move.word : move.came;
  const auto head = std::as_writable_bytes(std::span(&word, 1)).subspan(std::min(move.done, sizeof word));
  const auto body = move.body.subspan(move.done < sizeof word ? 0 : move.done - sizeof word);
  const auto count = move.out ? send_some(*move.socket, head, body) : receive_some(*move.socket, head, body);
  if (!count) ended(op, move.peer);
  if (*count == 0) return false;
  const bool word_was_there = move.done >= sizeof word;
  move.done += *count;
  if (move.out || word_was_there || move.done < sizeof word) return true;
  if (move.any_word) {
    move.word = move.came;
  } else if (move.came != move.word) {
    const auto words = [&](uint64_t value) { return describe ? describe(value) : std::to_string(value); };
    const std::string what = "ranks disagree: rank " + std::to_string(rank_) + " calls " + words(move.word) + ", rank " + std::to_string(move.peer) + " calls " + words(move.came);
    end_group_(what);
    throw std::logic_error(what);
  }
  return true;
}

/// Until one of the unfinished moves can go on.
void Exchange::sleep(std::span<const Move> moves, Clock::time_point deadline) const {
  std::vector<pollfd> events;
  for (const Move& move : moves)
    if (!move.finished()) events.push_back({move.socket->descriptor(), static_cast<short>(move.out ? POLLOUT : POLLIN), 0});
  const auto left = std::min<Clock::duration>(look_up, deadline - Clock::now());
  poll(events.data(), events.size(), std::max(1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count())));
}

void Exchange::run(const char* op, std::span<Move> moves, std::string (*describe)(uint64_t)) {
  auto deadline = after(deadline_);
  auto budget = spin_.budget();
  auto sleep_from = Clock::now() + budget;
  bool slept = false;
  for (;;) {
    if (note_.aborted()) throw_aborted(op, rank_, note_);
    bool moved = false, all = true;
    for (Move& move : moves)   // what comes first: it may say why nothing can be sent
      if (!move.out) moved |= advance(op, move, describe);
    for (Move& move : moves) {
      if (move.out) moved |= advance(op, move, describe);
      all &= move.finished();
    }
    if (all) break;
    if (moved) {
      deadline = after(deadline_);
      sleep_from = Clock::now() + budget;
      continue;
    }
    const auto now = Clock::now();
    if (now >= deadline) {
      const auto missing = std::find_if(moves.begin(), moves.end(), [](const Move& move) { return !move.finished(); });
      fail(std::string(op) + " on rank " + std::to_string(rank_) + " waited " + std::to_string(deadline_.count()) + " ms for rank " + std::to_string(missing->peer));
    }
    if (now < sleep_from) {
      relax();
      continue;
    }
    slept = true;
    sleep(moves, deadline);
  }
  spin_.learn(budget, slept);
}

bool Exchange::wait_for_data(const char* op, const Socket& socket, std::chrono::milliseconds timeout) {
  const auto end = after(timeout);
  for (;;) {
    if (note_.aborted()) throw_aborted(op, rank_, note_);
    const auto left = std::max<Clock::duration>(Clock::duration::zero(), end - Clock::now());
    if (wait_for(socket, false, std::min(std::chrono::ceil<std::chrono::milliseconds>(left), look_up))) return true;
    if (Clock::now() >= end) return false;
  }
}

}  // namespace pm::comm
