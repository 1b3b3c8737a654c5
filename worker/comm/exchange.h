// Several messages at once over as many connections, in both directions: nobody waits to be read before it reads.
#pragma once
#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "worker/comm/abort_note.h"
#include "worker/comm/door.h"
#include "worker/comm/socket.h"

namespace pm::comm {

/// One message to or from `peer`: a word, then the body. In a message that comes in, the word has to be the one expected, where one is given.
struct Move {
  const Socket* socket = nullptr;
  int peer = 0;
  bool out = false;
  uint64_t word = 0;
  std::span<std::byte> body;           ///< of one that goes out it is only read
  bool any_word = false;               ///< whatever comes is taken, and is in `word` afterwards
  size_t done = 0;                     ///< bytes, the word's included
  uint64_t came = 0;
  bool finished() const { return done == sizeof word + body.size(); }
};

/// One thread's side of exchanges. Waits end with Error{RankLost, CommunicatorAborted} at the deadline, which starts anew whenever something moves, when a connection
/// ends, or when the group is aborted.
class Exchange {
 public:
  /// `rank`, and the peers of moves: the world's numbers. `end_group` is called with the reason before a failure is thrown.
  Exchange(AbortNote& note, int rank, int waiters, std::chrono::milliseconds deadline, std::function<void(const std::string&)> end_group);
  /// Returns when all moves are finished. Throws std::logic_error when another word comes than expected, which `describe` puts into words.
  void run(const char* op, std::span<Move> moves, std::string (*describe)(uint64_t) = nullptr);
  /// False when nothing came within `timeout`.
  bool wait_for_data(const char* op, const Socket&, std::chrono::milliseconds timeout);

 private:
  bool advance(const char* op, Move&, std::string (*describe)(uint64_t));
  void sleep(std::span<const Move>, Clock::time_point deadline) const;
  [[noreturn]] void fail(const std::string& what);
  [[noreturn]] void ended(const char* op, int peer);

  AbortNote& note_;
  const int rank_;
  const std::chrono::milliseconds deadline_;
  Spin spin_;
  const std::function<void(const std::string&)> end_group_;
};

}  // namespace pm::comm
