// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "worker/base/error.h"
#include "worker/comm/tcp/socket.h"
#include "worker/launch/node_link.h"
#include "worker/launch/status_json.h"

#include "base/log.h"

namespace pm::launch {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds beat{100}, hello_within{5000}, retry{1000}, goodbye_timeout{500};
constexpr size_t max_unverified = 32, longest_message = 256 << 10;

std::string range_text(Slice ranks) {
  return ranks.count == 1
             ? "rank " + std::to_string(ranks.first)
             : "ranks " + std::to_string(ranks.first) + " to " + std::to_string(ranks.first + ranks.count - 1);
}

/// A launcher that is connected to this one.
struct Peer {
  Peer(comm::Socket socket, bool caller) : address(comm::peer_of(socket)), link(std::move(socket), caller) {}
  bool is_admitted() const { return node >= 0; }
  std::string address;
  NodeLink link;
  int node = -1;  ///< set after its hello (or the reply to this launcher's hello)
  bool said_goodbye = false;
  bool gone = false;  ///< must be dropped
  Clock::time_point since = Clock::now();
};

}  // namespace

struct Rendezvous::Impl {
  Impl(const Nodes& n, std::shared_ptr<comm::StatusTable> b, milliseconds s)
      : nodes(n),
        status_table(std::move(b)),
        silence(s),
        ranks(status_table->size()),
        here(partition(ranks, nodes.count, nodes.index)),
        event_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (nodes.index != 0) return;
    listener = comm::listen_on(nodes.port);
    uint64_t drawn[2] = {};
    while (drawn[0] == 0 || drawn[1] == 0)
      if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
        throw Error(Reason::RankLost, "getrandom() failed: the kernel gives no random numbers");
    status_table->token()[1] = drawn[1];
    status_table->token()[0] = drawn[0];
  }
  ~Impl() { close(event_fd), close(thread_event_fd); }

  Slice of(int node) const { return partition(ranks, nodes.count, node); }
  std::string name(int node) const { return "node " + std::to_string(node) + " (" + range_text(of(node)) + ")"; }

  void push(PeerEvent one) {
    {
      const std::lock_guard lock(mutex);
      pending_events.push_back(std::move(one));
    }
    signal_event(event_fd);
  }
  void broadcast(json message) {
    {
      const std::lock_guard lock(mutex);
      outgoing.push_back(std::move(message));
    }
    wake();
  }
  void wake() const { signal_event(thread_event_fd); }
  static void signal_event(int event_fd) {
    const uint64_t one = 1;
    if (write(event_fd, &one, sizeof one) < 0) return;  // the event is set already
  }

  // --- received messages ---
  void lost(const Peer& peer, Reason reason, const std::string& how) {
    if (peer.said_goodbye) return;
    push({PeerEvent::Kind::Failed,
          peer.node,
          {of(peer.node).first, reason, name(peer.node) + " at " + peer.address + " is lost: " + how, 5}});
  }

  /// Returns why a peer is refused, empty when it is accepted. `again` is set when it may succeed later.
  std::string refusal(const json& hello, bool& again) const {
    const int64_t replica_generation = hello.value("replicaGeneration", int64_t{-1});
    const int node = hello.value("node", -1), count = hello.value("nodes", 0);
    const std::string me = "this is node 0 of " + std::to_string(nodes.count) + ", replica generation " +
                           std::to_string(nodes.replica_generation);
    again = replica_generation >
            nodes.replica_generation;  // this launcher may belong to the previous replica generation, which is ending
    if (replica_generation != nodes.replica_generation)
      return me + ", and you are of replica generation " + std::to_string(replica_generation);
    if (count != nodes.count || node < 1 || node >= nodes.count)
      return me + ", and you are node " + std::to_string(node) + " of " + std::to_string(count);
    if (hello.value("plan", "") != nodes.plan)
      return me + ", and your plan differs from the plan here: give every node the same file";
    const bool taken = std::any_of(peers.begin(), peers.end(), [&](const auto& peer) { return peer->node == node; }) ||
                       std::find(joined.begin(), joined.end(), node) != joined.end();
    return taken ? me + ", and node " + std::to_string(node) + " is connected already" : "";
  }

  /// Handles the first message of a peer. Returns false to disconnect it.
  bool handle_hello(Peer& peer, const json& message) {
    if (!message.contains("hello") || !message["hello"].is_object()) return false;
    bool again = false;
    const std::string words = refusal(message["hello"], again);
    if (!words.empty()) {
      LOG(WARNING) << "refused a launcher at " << peer.address << ": " << words;
      peer.link.send({{"refused", words}, {"again", again}});
      peer.link.pump();
      return false;
    }
    peer.node = message["hello"]["node"];
    joined.push_back(peer.node);
    peer.link.allow(longest_message);
    peer.link.send({{"welcome", {status_table->token()[0].load(), status_table->token()[1].load()}}});
    LOG(INFO) << name(peer.node) << " is connected from " << peer.address;
    return true;
  }

  /// Handles the reply to the hello of this launcher. Returns false when it was refused.
  bool handle_hello_reply(Peer& peer, const json& message) {
    if (message.contains("refused")) {
      const std::string words = message.value("refused", "");
      if (message.value("again", false))
        LOG(WARNING) << "node 0 at " << peer.address << " refuses: " << words << "; trying again";
      else
        push({PeerEvent::Kind::Failed,
              nodes.index,
              {here.first, Reason::CommunicatorAborted,
               "node 0 at " + peer.address + " refuses " + name(nodes.index) + ": " + words, 5}});
      return false;
    }
    if (!message.contains("welcome") || !message["welcome"].is_array() || message["welcome"].size() != 2) return false;
    peer.node = 0;
    status_table->token()[1] = message["welcome"][1].get<uint64_t>();
    status_table->token()[0] = message["welcome"][0].get<uint64_t>();
    LOG(INFO) << "node " << nodes.index << " is connected to node 0 at " << peer.address;
    return true;
  }

  bool handle_message(Peer& peer, const json& message) {
    if (!peer.is_admitted()) return nodes.index == 0 ? handle_hello(peer, message) : handle_hello_reply(peer, message);
    if (message.contains("ranks")) {
      for (const json& rank : message["ranks"]) {
        const int number = rank.value("rank", -1);
        const Slice theirs = of(peer.node);
        const bool of_peer = number >= theirs.first && number < theirs.first + theirs.count;
        const bool of_others =
            number >= 0 && number < ranks && !(number >= here.first && number < here.first + here.count);
        if (nodes.index == 0 ? of_peer : of_others)
          apply_rank_json(rank, *status_table, of_peer ? peer.address : rank.value("address", ""));
      }
    }
    if (message.contains("failure")) {
      const Failure failure = failure_from_json(message["failure"], ranks);
      push({PeerEvent::Kind::Failed, peer.node, failure});
      for (const auto& other : peers)
        if (nodes.index == 0 && other.get() != &peer && other->is_admitted())
          other->link.send({{"failure", failure_to_json(failure)}});
    }
    if (message.contains("stop") && nodes.index == 0) push({PeerEvent::Kind::Stop, peer.node, {}});
    if (message.contains("bye")) {
      peer.said_goodbye = true;
      push({PeerEvent::Kind::Left, peer.node, {}});
    }
    return true;
  }

  /// Reads, answers and checks one peer; returns false when the peer must be dropped.
  bool serve(Peer& peer, Clock::time_point now) {
    bool open = peer.link.pump();
    try {
      while (const auto message = peer.link.next())
        if (!handle_message(peer, *message)) return false;
    } catch (const json::exception&) {
      if (peer.is_admitted()) lost(peer, Reason::RankLost, "it sent an invalid message");
      return false;
    }
    open = open && peer.link.pump();
    if (!peer.is_admitted()) return open && now - peer.since < hello_within;
    if (!open) return lost(peer, Reason::RankLost, peer.link.why()), false;
    if (now - peer.link.heard() < silence) return true;
    lost(peer, Reason::NodeLost,
         "it has been silent for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - peer.link.heard()).count()) + " s");
    return false;
  }

  // --- sent messages ---
  void send_rank_statuses() {
    for (const auto& peer : peers) {
      if (!peer->is_admitted()) continue;
      json all = json::array();
      const Slice theirs = of(peer->node);
      for (int r = 0; r < ranks; ++r) {
        const bool ours = r >= here.first && r < here.first + here.count,
                   their_own = r >= theirs.first && r < theirs.first + theirs.count;
        if (ours || (nodes.index == 0 && !their_own)) all.push_back(rank_to_json(r, *status_table, !ours));
      }
      peer->link.send({{"ranks", all}});
    }
  }

  void send_waiting() {
    std::vector<json> messages;
    {
      const std::lock_guard lock(mutex);
      if (std::none_of(peers.begin(), peers.end(), [](const auto& peer) { return peer->is_admitted(); }) && !leaving)
        return;  // messages wait until a peer is connected
      messages.swap(outgoing);
    }
    for (const json& message : messages)
      for (const auto& peer : peers)
        if (peer->is_admitted()) peer->link.send(message);
  }

  // --- the thread ---
  void accept_callers() {
    for (comm::Socket socket = comm::accept_from(listener); socket.is_open(); socket = comm::accept_from(listener)) {
      const auto unverified =
          std::count_if(peers.begin(), peers.end(), [](const auto& peer) { return !peer->is_admitted(); });
      if (unverified >= static_cast<std::ptrdiff_t>(max_unverified))
        peers.erase(std::find_if(peers.begin(), peers.end(), [](const auto& peer) { return !peer->is_admitted(); }));
      peers.push_back(std::make_unique<Peer>(std::move(socket), false));
    }
  }

  void call_node_0(Clock::time_point now) {
    if (!peers.empty() || was_connected || now < next_call) return;
    next_call = now + retry;
    std::string why;
    comm::Socket socket = comm::connect_to(nodes.host, nodes.port, retry, why);
    if (!socket.is_open()) {
      if (calls++ % 30 == 0)
        LOG(INFO) << "waiting for node 0 at " << nodes.host << ":" << nodes.port << ": " << why
                  << "; trying each second";
      return;
    }
    peers.push_back(std::make_unique<Peer>(std::move(socket), true));
    peers.back()->link.allow(longest_message);
    peers.back()->link.send({{"hello",
                              {{"replicaGeneration", nodes.replica_generation},
                               {"nodes", nodes.count},
                               {"node", nodes.index},
                               {"plan", nodes.plan}}}});
  }

  void wait() const {
    std::vector<pollfd> events{{thread_event_fd, POLLIN, 0}};
    if (listener.is_open()) events.push_back({listener.descriptor(), POLLIN, 0});
    for (const auto& peer : peers)
      events.push_back({peer->link.socket().descriptor(),
                        static_cast<short>(peer->link.has_more_to_send() ? POLLIN | POLLOUT : POLLIN), 0});
    poll(events.data(), events.size(), static_cast<int>(beat.count()));
    uint64_t rings = 0;
    if (read(thread_event_fd, &rings, sizeof rings) < 0) return;  // the event is not set
  }

  void run() {
    auto last = Clock::now(), next_beat = last;
    while (!leaving) {
      wait();
      const auto now = Clock::now();
      if (nodes.index == 0)
        accept_callers();
      else
        call_node_0(now);
      if (now - last > std::chrono::seconds(1))  // this process was stopped itself, or a name server was slow
        for (const auto& peer : peers) peer->link.reset_silence(now);
      last = now;
      for (const auto& peer : peers)
        peer->gone = !serve(*peer, Clock::now());  // one after the other, because each may look at all
      std::erase_if(peers, [](const auto& peer) { return peer->gone; });
      was_connected = was_connected ||
                      std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer->is_admitted(); });
      connected = nodes.index == 0 ? static_cast<int>(joined.size()) == nodes.count - 1 : was_connected;
      send_waiting();
      if (now >= next_beat) send_rank_statuses(), next_beat = now + beat;
      for (const auto& peer : peers) peer->link.pump();
    }
    send_waiting();
    for (const auto& peer : peers)
      if (peer->is_admitted()) peer->link.send({{"bye", true}});
    const auto end = Clock::now() + goodbye_timeout;
    while (Clock::now() < end && std::any_of(peers.begin(), peers.end(), [](const auto& peer) {
             return peer->link.pump() && peer->link.has_more_to_send();
           }))
      wait();
    for (const auto& peer : peers) peer->link.socket().shut();
    done = true;
  }

  const Nodes nodes;
  const std::shared_ptr<comm::StatusTable> status_table;
  const milliseconds silence;
  const int ranks;
  const Slice here;
  const int event_fd;  ///< set for the launcher
  const int thread_event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  comm::Socket listener;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<int> joined;  ///< nodes that have ever joined
  bool was_connected = false;
  Clock::time_point next_call{};
  int calls = 0;
  std::atomic<bool> leaving{false}, done{false}, connected{false};
  std::mutex mutex;  ///< guards the two members below
  std::vector<PeerEvent> pending_events;
  std::vector<json> outgoing;
};

Rendezvous::Rendezvous(const Nodes& nodes, std::shared_ptr<comm::StatusTable> status_table, milliseconds silence)
    : impl_(std::make_shared<Impl>(nodes, std::move(status_table), silence)) {}

void Rendezvous::start() {
  std::thread([impl = impl_] { impl->run(); }).detach();
}

Rendezvous::~Rendezvous() {
  impl_->leaving = true;
  impl_->wake();
  const auto patience = Clock::now() + 2 * goodbye_timeout;
  while (!impl_->done && Clock::now() < patience) std::this_thread::sleep_for(milliseconds(1));
}

int Rendezvous::descriptor() const { return impl_->event_fd; }

std::vector<PeerEvent> Rendezvous::take_events() {
  uint64_t rings = 0;
  if (read(impl_->event_fd, &rings, sizeof rings) < 0) return {};
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->pending_events, {});
}

bool Rendezvous::connected() const { return impl_->connected; }

void Rendezvous::send_failure(const Failure& failure) { impl_->broadcast({{"failure", failure_to_json(failure)}}); }

void Rendezvous::request_stop() { impl_->broadcast({{"stop", true}}); }

}  // namespace pm::launch
