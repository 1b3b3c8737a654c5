// SPDX-License-Identifier: Apache-2.0
// Connects one rank to the ranks of other nodes: it listens, connects to all of them, and receives abort reasons from
// any.
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

#include "worker/comm/shared_memory/segment.h"
#include "worker/comm/tcp/socket.h"
#include "worker/comm/wait/abort_note.h"

namespace pm::comm {

/// The purpose of a connection between two ranks. Each purpose has its own connection, so that threads of a rank do not
/// read messages of each other.
enum class Purpose : uint32_t { Collective, PointToPoint, Control, Abort };
constexpr int purposes = 4;

struct Address {
  std::string host;
  int port = 0;
};

/// A secret that only ranks of the group know; all-zero while it is unknown.
using Token = std::array<uint64_t, 2>;

/// The first message on a connection. The reply is a length and a text: length 0 accepts the rank, any other text says
/// why it is refused.
struct Hello {
  static constexpr uint64_t mesh_magic = 0x3168'7365'6d6d70;  // "pmmesh1"
  uint64_t magic = mesh_magic;
  int64_t replica_generation = 0;
  Token token{};
  int32_t from = 0, to = 0;
  uint32_t purpose = 0, ranks = 0;
};

struct MeshSettings {
  int rank = 0, size = 1;    ///< world rank and world size
  int first = 0, count = 1;  ///< ranks of this node, which connect for collectives only
  int64_t replica_generation = 0;
  std::function<Token()> token;
  std::function<std::optional<Address>(int rank)>
      resolve_address;  ///< returns the address of another rank; nothing while it is unknown
};

/// Accepts connections on a thread of its own. A peer has five seconds for its hello, at most 64 hellos are pending,
/// and a peer that sends anything else gets a text that says what was expected.
class Mesh {
 public:
  /// Starts to listen. `segment` belongs to the node; aborting it aborts every rank.
  Mesh(MeshSettings, std::shared_ptr<Segment> segment);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int port() const { return port_; }
  const MeshSettings& settings() const { return settings_; }
  Segment& segment() { return *segment_; }
  bool is_local(int rank) const { return rank >= settings_.first && rank < settings_.first + settings_.count; }
  /// Connects to all ranks before this one and waits for those after it; has no deadline of its own. Throws
  /// Error{RankLost} when the group is aborted or a rank of another replica generation answers.
  void connect_all();
  /// Returns the connection to `peer` for a purpose. Must be called after connect_all().
  const Socket& connection(int peer, Purpose) const;
  /// Ends every wait of all ranks: sends the reason to the others, then closes the connections.
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
  std::optional<Socket> connect_peer(int peer, Purpose);
  void run();
  void read_hellos(std::vector<Pending>&);
  std::string refusal(const Hello&) const;
  void read_abort_notices();
  void broadcast_abort();

  const MeshSettings settings_;
  const std::shared_ptr<Segment> segment_;
  const Socket listener_;
  const int port_;
  mutable std::mutex mutex_;  ///< guards the connections
  std::map<Key, std::shared_ptr<Socket>> connections_;
  bool closed_ = false;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace pm::comm
