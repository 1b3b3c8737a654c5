// One rank's connections to the ranks of other nodes: it listens, meets all of them, and hears from any of them why the group ends.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/abort_note.h"
#include "worker/comm/segment.h"
#include "worker/comm/socket.h"

namespace pm::comm {

/// What a connection between two ranks is for: each has its own, so that threads of a rank do not read each other's messages.
enum class Purpose : uint32_t { Collective, PointToPoint, Control, Alarm };
constexpr int purposes = 4;

struct Address { std::string host; int port = 0; };

/// A number that only ranks of the group know; all-zero: not known yet.
using Token = std::array<uint64_t, 2>;

/// What a rank says first on a connection. It gets a line of words as a reply: their count, 0 when it is welcome, and the words why it is not.
struct Hello {
  static constexpr uint64_t right_magic = 0x3168'7365'6d6d70;   // "pmmesh1"
  uint64_t magic = right_magic;
  int64_t incarnation = 0;
  Token token{};
  int32_t from = 0, to = 0;
  uint32_t purpose = 0, ranks = 0;
};

struct MeshSettings {
  int rank = 0, size = 1;              ///< the world's
  int first = 0, count = 1;            ///< ranks of this node: only collectives connect to them
  int64_t incarnation = 0;
  std::function<Token()> token;
  std::function<std::optional<Address>(int rank)> book;   ///< where another rank listens; nothing: not known yet
};

/// A thread of its own takes connections: each has five seconds for its hello, at most 64 wait for theirs, and whoever says anything else is told what was expected.
class Mesh {
 public:
  /// Listens at once. `segment`: the node's, whose abort is every rank's.
  Mesh(MeshSettings, std::shared_ptr<Segment> segment);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int port() const { return port_; }
  const MeshSettings& settings() const { return settings_; }
  Segment& segment() { return *segment_; }
  bool here(int rank) const { return rank >= settings_.first && rank < settings_.first + settings_.count; }
  /// Connects to all ranks before this one and waits for those after it; has no deadline of its own. Throws Error{RankLost} when the group is aborted or another
  /// incarnation is met.
  void meet();
  /// After meet().
  const Socket& connection(int peer, Purpose) const;
  /// Ends every wait of all ranks: tells the others, then closes.
  void abort(const std::string& reason);

 private:
  struct Pending {
    Socket socket;
    std::array<std::byte, sizeof(Hello)> bytes{};
    size_t got = 0;
    std::chrono::steady_clock::time_point until;
  };
  using Key = std::pair<int, Purpose>;

  bool needed(int peer, Purpose) const;
  std::optional<Socket> call(int peer, Purpose);
  void run();
  void take_hellos(std::vector<Pending>&);
  std::string refusal(const Hello&) const;
  void listen_to_alarms();
  void spread();

  const MeshSettings settings_;
  const std::shared_ptr<Segment> segment_;
  const Socket listener_;
  const int port_;
  mutable std::mutex mutex_;                     ///< guards the connections
  std::map<Key, std::shared_ptr<Socket>> connections_;
  bool closed_ = false;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace pm::comm
