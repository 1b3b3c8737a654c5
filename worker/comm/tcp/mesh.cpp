// See mesh.h.
#include "worker/comm/mesh.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "worker/base/error.h"
#include "worker/base/log.h"

namespace pm::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds hello_within{5000}, connect_within{2000}, again{50}, tick{50};
constexpr size_t most_pending = 64;
constexpr uint32_t most_words = 500;

std::string name(int rank) { return "rank " + std::to_string(rank); }

void say(const Socket& socket, const std::string& words) {
  const auto length = static_cast<uint32_t>(std::min<size_t>(words.size(), most_words));
  std::vector<std::byte> bytes(sizeof length + length);
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, words.data(), length);
  send_all(socket, bytes, milliseconds(0));   // a fresh connection has room for them; whoever left none need not hear
}

/// What the other says; nothing when it says nothing, or too much.
std::optional<std::string> hear(const Socket& socket, milliseconds within) {
  uint32_t length = 0;
  if (!receive_all(socket, std::as_writable_bytes(std::span(&length, 1)), within) || length > most_words) return std::nullopt;
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
  return !here(peer) && (purpose != Purpose::Control || peer == 0 || settings_.rank == 0);
}

void Mesh::meet() {
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
          if (auto socket = call(peer, key.second)) {
            const std::lock_guard lock(mutex_);
            connections_[key] = std::make_shared<Socket>(*std::move(socket));
            break;
          }
        }
        std::this_thread::sleep_for(again);
      }
    }
  }
}

/// A connection that the other has taken; nothing when it has to be tried again.
std::optional<Socket> Mesh::call(int peer, Purpose purpose) {
  const auto where = settings_.book(peer);
  const Token token = settings_.token();
  if (!where || token == Token{}) return std::nullopt;
  std::string why;
  Socket socket = connect_to(where->host, where->port, connect_within, why);
  if (!socket.is_open()) return std::nullopt;
  const Hello hello{.incarnation = settings_.incarnation, .token = token, .from = settings_.rank, .to = peer, .purpose = static_cast<uint32_t>(purpose),
                    .ranks = static_cast<uint32_t>(settings_.size)};
  if (!send_all(socket, std::as_bytes(std::span(&hello, 1)), connect_within)) return std::nullopt;
  const auto words = hear(socket, hello_within);
  if (!words) return std::nullopt;
  if (words->empty()) return socket;
  throw Error(ErrorKind::RankLost, "CommunicatorAborted", name(peer) + " at " + where->host + ":" + std::to_string(where->port) + " refused " + name(settings_.rank) + ": " + *words);
}

const Socket& Mesh::connection(int peer, Purpose purpose) const {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find({peer, purpose});
  if (found == connections_.end()) throw std::logic_error(name(settings_.rank) + " has not met " + name(peer));
  return *found->second;
}

std::string Mesh::refusal(const Hello& hello) const {
  const std::string me = "this is " + name(settings_.rank) + " of " + std::to_string(settings_.size) + ", incarnation " + std::to_string(settings_.incarnation);
  if (hello.magic != Hello::right_magic) return me + ", of a group of parallelmodel-worker processes; what came is not their greeting";
  if (hello.incarnation != settings_.incarnation) return me + ", and you are of incarnation " + std::to_string(hello.incarnation);
  if (hello.token != settings_.token() || hello.token == Token{}) return me + ", and you do not know the group's token";
  if (hello.ranks != static_cast<uint32_t>(settings_.size) || hello.to != settings_.rank || hello.purpose >= purposes || hello.from <= settings_.rank || hello.from >= settings_.size ||
      !needed(hello.from, static_cast<Purpose>(hello.purpose)))
    return me + ", and you look for " + name(hello.to) + " of " + std::to_string(hello.ranks) + " as " + name(hello.from) + ", purpose " + std::to_string(hello.purpose);
  const std::lock_guard lock(mutex_);
  return connections_.contains({hello.from, static_cast<Purpose>(hello.purpose)}) ? me + ", and " + name(hello.from) + " is here already" : "";
}

void Mesh::take_hellos(std::vector<Pending>& pending) {
  for (Socket socket = accept_from(listener_); socket.is_open(); socket = accept_from(listener_)) {
    if (pending.size() >= most_pending) pending.erase(pending.begin());   // the oldest has had the most time
    pending.push_back({std::move(socket), {}, 0, Clock::now() + hello_within});
  }
  std::erase_if(pending, [&](Pending& one) {
    const auto count = receive_some(one.socket, std::span(one.bytes).subspan(one.got));
    if (!count || Clock::now() > one.until) return true;
    one.got += *count;
    Hello hello;
    std::memcpy(&hello, one.bytes.data(), sizeof hello);
    if (one.got >= sizeof hello.magic && hello.magic != Hello::right_magic) return say(one.socket, refusal(hello)), true;
    if (one.got < sizeof hello) return false;
    const std::string words = refusal(hello);
    if (!words.empty()) {
      LOG(WARNING) << name(settings_.rank) << " refused " << peer_of(one.socket) << ": " << words;
      return say(one.socket, words), true;
    }
    say(one.socket, "");   // before anybody else of this rank writes there
    const std::lock_guard lock(mutex_);
    if (!closed_) connections_[{hello.from, static_cast<Purpose>(hello.purpose)}] = std::make_shared<Socket>(std::move(one.socket));
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
        if (key.second == Purpose::Alarm && socket->is_open()) events.push_back({socket->descriptor(), POLLIN, 0});
    }
    poll(events.data(), events.size(), static_cast<int>(tick.count()));
    take_hellos(pending);
    listen_to_alarms();
    if (segment_->note().aborted()) spread();
  }
}

/// A rank that aborts says why before it closes its connections. One that ends without a word is the launchers' concern, and that of those who wait for it.
void Mesh::listen_to_alarms() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, socket] : connections_) {
      if (key.second != Purpose::Alarm || !socket->is_open() || closed_) continue;
      pollfd event{socket->descriptor(), POLLIN, 0};
      if (poll(&event, 1, 0) <= 0) continue;
      if (const auto words = hear(*socket, milliseconds(100)); words && !words->empty() && reason.empty()) reason = *words;
      socket->close();
    }
  }
  if (!reason.empty()) segment_->abort(reason);
}

/// Tells the others of an abort of this node, and closes what threads of this rank may be waiting at.
void Mesh::spread() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(closed_, true)) return;
  for (const auto& [key, socket] : connections_)
    if (key.second == Purpose::Alarm && socket->is_open()) say(*socket, segment_->note().text());
  for (const auto& [key, socket] : connections_)
    if (key.second != Purpose::Alarm) socket->shut();
}

void Mesh::abort(const std::string& reason) {
  segment_->abort(reason);
  spread();
}

}  // namespace pm::comm
