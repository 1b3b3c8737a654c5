// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/tcp/mesh.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "worker/base/error.h"

#include "base/log.h"

namespace pm::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds hello_within{5000}, connect_within{2000}, retry_interval{50}, tick{50};
constexpr size_t max_pending = 64;
constexpr uint32_t max_text_bytes = 500;

std::string name(int rank) { return "rank " + std::to_string(rank); }

void send_text(const Socket& socket, const std::string& words) {
  const auto length = static_cast<uint32_t>(std::min<size_t>(words.size(), max_text_bytes));
  std::vector<std::byte> bytes(sizeof length + length);
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, words.data(), length);
  send_all(socket, bytes,
           milliseconds(0));  // a new connection has space for the text; a peer that left none need not read it
}

/// Reads a text from the peer; returns nothing when none comes in time or it is too long.
std::optional<std::string> receive_text(const Socket& socket, milliseconds within) {
  uint32_t length = 0;
  if (!receive_all(socket, std::as_writable_bytes(std::span(&length, 1)), within) || length > max_text_bytes)
    return std::nullopt;
  std::string words(length, ' ');
  if (!receive_all(socket, std::as_writable_bytes(std::span(words)), within)) return std::nullopt;
  return words;
}

}  // namespace

Mesh::Mesh(MeshSettings settings, std::shared_ptr<Segment> segment)
    : settings_(std::move(settings)), segment_(std::move(segment)), listener_(listen_on(0)), port_(port_of(listener_)) {
  thread_ = std::thread([this] { run(); });
}

Mesh::~Mesh() {
  leaving_ = true;
  thread_.join();
}

bool Mesh::needed(int peer, Purpose purpose) const {
  if (peer == settings_.rank) return false;
  if (purpose == Purpose::Collective) return true;
  return !is_local(peer) && (purpose != Purpose::Control || peer == 0 || settings_.rank == 0);
}

void Mesh::connect_all() {
  for (int peer = 0; peer < settings_.size; ++peer) {
    for (int p = 0; p < purposes; ++p) {
      const Key key{peer, static_cast<Purpose>(p)};
      if (!needed(peer, key.second)) continue;
      for (;;) {
        if (segment_->note().aborted()) throw_aborted("rendezvous", settings_.rank, segment_->note());
        {
          const std::lock_guard lock(mutex_);
          if (connections_.contains(key)) break;
        }
        if (peer < settings_.rank) {
          if (auto socket = connect_peer(peer, key.second)) {
            const std::lock_guard lock(mutex_);
            connections_[key] = std::make_shared<Socket>(*std::move(socket));
            break;
          }
        }
        std::this_thread::sleep_for(retry_interval);
      }
    }
  }
}

/// Connects to a peer. Returns the connection once the peer has accepted it, and nothing when it has to be tried again.
std::optional<Socket> Mesh::connect_peer(int peer, Purpose purpose) {
  const auto where = settings_.resolve_address(peer);
  const Token token = settings_.token();
  if (!where || token == Token{}) return std::nullopt;
  std::string why;
  Socket socket = connect_to(where->host, where->port, connect_within, why);
  if (!socket.is_open()) return std::nullopt;
  const Hello hello{.replica_generation = settings_.replica_generation,
                    .token = token,
                    .from = settings_.rank,
                    .to = peer,
                    .purpose = static_cast<uint32_t>(purpose),
                    .ranks = static_cast<uint32_t>(settings_.size)};
  if (!send_all(socket, std::as_bytes(std::span(&hello, 1)), connect_within)) return std::nullopt;
  const auto words = receive_text(socket, hello_within);
  if (!words) return std::nullopt;
  if (words->empty()) return socket;
  throw Error(Reason::CommunicatorAborted, name(peer) + " at " + where->host + ":" + std::to_string(where->port) +
                                               " refused " + name(settings_.rank) + ": " + *words);
}

const Socket& Mesh::connection(int peer, Purpose purpose) const {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find({peer, purpose});
  if (found == connections_.end()) throw std::logic_error(name(settings_.rank) + " is not connected to " + name(peer));
  return *found->second;
}

std::string Mesh::refusal(const Hello& hello) const {
  const std::string me = "this is " + name(settings_.rank) + " of " + std::to_string(settings_.size) +
                         ", replica generation " + std::to_string(settings_.replica_generation);
  if (hello.magic != Hello::mesh_magic)
    return me + ", of a group of parallelmodel-worker processes; the input is not their greeting";
  if (hello.replica_generation != settings_.replica_generation)
    return me + ", and you are of replica generation " + std::to_string(hello.replica_generation);
  if (hello.token != settings_.token() || hello.token == Token{}) return me + ", and you do not know the group's token";
  if (hello.ranks != static_cast<uint32_t>(settings_.size) || hello.to != settings_.rank || hello.purpose >= purposes ||
      hello.from <= settings_.rank || hello.from >= settings_.size ||
      !needed(hello.from, static_cast<Purpose>(hello.purpose)))
    return me + ", and you asked for " + name(hello.to) + " of " + std::to_string(hello.ranks) + " as " +
           name(hello.from) + ", purpose " + std::to_string(hello.purpose);
  const std::lock_guard lock(mutex_);
  return connections_.contains({hello.from, static_cast<Purpose>(hello.purpose)})
             ? me + ", and " + name(hello.from) + " is connected already"
             : "";
}

void Mesh::read_hellos(std::vector<Pending>& pending) {
  for (Socket socket = accept_from(listener_); socket.is_open(); socket = accept_from(listener_)) {
    if (pending.size() >= max_pending) pending.erase(pending.begin());  // the oldest one has had the most time
    pending.push_back({std::move(socket), {}, 0, Clock::now() + hello_within});
  }
  std::erase_if(pending, [&](Pending& one) {
    const auto count = receive_some(one.socket, std::span(one.bytes).subspan(one.got));
    if (!count || Clock::now() > one.until) return true;
    one.got += *count;
    Hello hello;
    std::memcpy(&hello, one.bytes.data(), sizeof hello);
    if (one.got >= sizeof hello.magic && hello.magic != Hello::mesh_magic)
      return send_text(one.socket, refusal(hello)), true;
    if (one.got < sizeof hello) return false;
    const std::string words = refusal(hello);
    if (!words.empty()) {
      LOG(WARNING) << name(settings_.rank) << " refused " << peer_of(one.socket) << ": " << words;
      return send_text(one.socket, words), true;
    }
    send_text(one.socket, "");  // must be sent before another thread of this rank writes there
    const std::lock_guard lock(mutex_);
    if (!closed_)
      connections_[{hello.from, static_cast<Purpose>(hello.purpose)}] = std::make_shared<Socket>(std::move(one.socket));
    return true;
  });
}

void Mesh::run() {
  std::vector<Pending> pending;
  while (!leaving_) {
    std::vector<pollfd> events{{listener_.descriptor(), POLLIN, 0}};
    for (const Pending& one : pending) events.push_back({one.socket.descriptor(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, socket] : connections_)
        if (key.second == Purpose::Abort && socket->is_open()) events.push_back({socket->descriptor(), POLLIN, 0});
    }
    poll(events.data(), events.size(), static_cast<int>(tick.count()));
    read_hellos(pending);
    read_abort_notices();
    if (segment_->note().aborted()) broadcast_abort();
  }
}

/// Reads abort reasons. A rank that aborts sends the reason before it closes its connections. A rank that ends without
/// one is noticed by the launcher and by the ranks that wait for it.
void Mesh::read_abort_notices() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, socket] : connections_) {
      if (key.second != Purpose::Abort || !socket->is_open() || closed_) continue;
      pollfd event{socket->descriptor(), POLLIN, 0};
      if (poll(&event, 1, 0) <= 0) continue;
      if (const auto words = receive_text(*socket, milliseconds(100)); words && !words->empty() && reason.empty())
        reason = *words;
      socket->close();
    }
  }
  if (!reason.empty()) segment_->abort(reason);
}

/// Sends the abort reason of this node to the others and closes the connections at which threads of this rank may wait.
void Mesh::broadcast_abort() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true)) return;
  for (const auto& [key, socket] : connections_)
    if (key.second == Purpose::Abort && socket->is_open()) send_text(*socket, segment_->note().text());
  for (const auto& [key, socket] : connections_)
    if (key.second != Purpose::Abort) socket->shut();
}

void Mesh::abort(const std::string& reason) {
  segment_->abort(reason);
  broadcast_abort();
}

}  // namespace pm::comm
