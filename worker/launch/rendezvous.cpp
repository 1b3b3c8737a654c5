// See rendezvous.h.
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
#include "worker/comm/socket.h"
#include "worker/launch/link.h"
#include "worker/launch/told.h"
#include "worker/base/log.h"

namespace pm::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using nlohmann::json;

constexpr milliseconds beat{100}, hello_within{5000}, retry{1000}, farewell{500};
constexpr size_t most_strangers = 32, longest_message = 256 << 10;

std::string range_text(Dealt ranks) {
  return ranks.count == 1 ? "rank " + std::to_string(ranks.first) : "ranks " + std::to_string(ranks.first) + " to " + std::to_string(ranks.first + ranks.count - 1);
}

/// One launcher that is connected to this one.
struct Peer {
  Peer(comm::Socket socket, bool caller) : address(comm::peer_of(socket)), link(std::move(socket), caller) {}
  bool welcome() const { return node >= 0; }
  std::string address;
  Link link;
  int node = -1;                       ///< after its hello (or welcome)
  bool said_goodbye = false;
  bool gone = false;                   ///< to be forgotten
  Clock::time_point since = Clock::now();
};

}  // namespace

struct Rendezvous::Impl {
  Impl(const Nodes& n, std::shared_ptr<comm::StatusBoard> b, milliseconds s)
      : nodes(n), board(std::move(b)), silence(s), ranks(board->size()), here(deal(ranks, nodes.count, nodes.here)), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (nodes.here != 0) return;
    listener = comm::listen_on(nodes.port);
    uint64_t drawn[2] = {};
    while (drawn[0] == 0 || drawn[1] == 0)
      if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn) throw Error(ErrorKind::RankLost, "RankLost", "the kernel gives no random numbers");
    board->token()[1] = drawn[1];
    board->token()[0] = drawn[0];
  }
  ~Impl() { close(bell), close(bell_of_thread); }

  Dealt of(int node) const { return deal(ranks, nodes.count, node); }
  std::string name(int node) const { return "node " + std::to_string(node) + " (" + range_text(of(node)) + ")"; }

  void push(News one) {
    {
      const std::lock_guard lock(mutex);
      fresh.push_back(std::move(one));
    }
    ring(bell);
  }
  void say(json message) {
    {
      const std::lock_guard lock(mutex);
      outgoing.push_back(std::move(message));
    }
    wake();
  }
  void wake() const { ring(bell_of_thread); }
  static void ring(int bell) {
    const uint64_t one = 1;
    if (write(bell, &one, sizeof one) < 0) return;   // it rings already
  }

  // --- what comes ---
  void lost(const Peer& peer, const std::string& reason, const std::string& how) {
    if (peer.said_goodbye) return;
    push({News::Kind::Failed, peer.node, {of(peer.node).first, reason, name(peer.node) + " at " + peer.address + " is lost: " + how, 5}});
  }

  /// Why a caller is not welcome, empty when it is; `again`: it may be later.
  std::string refusal(const json& hello, bool& again) const {
    const int64_t incarnation = hello.value("incarnation", int64_t{-1});
    const int node = hello.value("node", -1), count = hello.value("nodes", 0);
    const std::string me = "this is node 0 of " + std::to_string(nodes.count) + ", incarnation " + std::to_string(nodes.incarnation);
    again = incarnation > nodes.incarnation;   // this one may be the last one's, on its way out
    if (incarnation != nodes.incarnation) return me + ", and you are of incarnation " + std::to_string(incarnation);
    if (count != nodes.count || node < 1 || node >= nodes.count) return me + ", and you are node " + std::to_string(node) + " of " + std::to_string(count);
    if (hello.value("plan", "") != nodes.plan) return me + ", and your plan is another than the one here: give every node the same file";
    const bool taken = std::any_of(peers.begin(), peers.end(), [&](const auto& peer) { return peer->node == node; }) || std::find(met.begin(), met.end(), node) != met.end();
    return taken ? me + ", and node " + std::to_string(node) + " has come already" : "";
  }

  /// The first message of a caller. False: it is hung up on.
  bool greet(Peer& peer, const json& message) {
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
    met.push_back(peer.node);
    peer.link.allow(longest_message);
    peer.link.send({{"welcome", {board->token()[0].load(), board->token()[1].load()}}});
    LOG(INFO) << name(peer.node) << " has come from " << peer.address;
    return true;
  }

  /// The reply to this launcher's hello. False: not welcome.
  bool greeted(Peer& peer, const json& message) {
    if (message.contains("refused")) {
      const std::string words = message.value("refused", "");
      if (message.value("again", false)) LOG(WARNING) << "node 0 at " << peer.address << " refuses: " << words << "; trying again";
      else push({News::Kind::Failed, nodes.here, {here.first, "CommunicatorAborted", "node 0 at " + peer.address + " refuses " + name(nodes.here) + ": " + words, 5}});
      return false;
    }
    if (!message.contains("welcome") || !message["welcome"].is_array() || message["welcome"].size() != 2) return false;
    peer.node = 0;
    board->token()[1] = message["welcome"][1].get<uint64_t>();
    board->token()[0] = message["welcome"][0].get<uint64_t>();
    LOG(INFO) << "node " << nodes.here << " is connected to node 0 at " << peer.address;
    return true;
  }

  bool take(Peer& peer, const json& message) {
    if (!peer.welcome()) return nodes.here == 0 ? greet(peer, message) : greeted(peer, message);
    if (message.contains("ranks")) {
      for (const json& rank : message["ranks"]) {
        const int number = rank.value("rank", -1);
        const Dealt theirs = of(peer.node);
        const bool of_peer = number >= theirs.first && number < theirs.first + theirs.count;
        const bool of_others = number >= 0 && number < ranks && !(number >= here.first && number < here.first + here.count);
        if (nodes.here == 0 ? of_peer : of_others) mirror(rank, *board, of_peer ? peer.address : rank.value("address", ""));
      }
    }
    if (message.contains("failure")) {
      const Failure failure = failure_from(message["failure"], ranks);
      push({News::Kind::Failed, peer.node, failure});
      for (const auto& other : peers)
        if (nodes.here == 0 && other.get() != &peer && other->welcome()) other->link.send({{"failure", told(failure)}});
    }
    if (message.contains("stop") && nodes.here == 0) push({News::Kind::Stop, peer.node, {}});
    if (message.contains("bye")) {
      peer.said_goodbye = true;
      push({News::Kind::Left, peer.node, {}});
    }
    return true;
  }

  /// Reads, answers, and judges one peer; false when it is to be forgotten.
  bool serve(Peer& peer, Clock::time_point now) {
    bool open = peer.link.pump();
    try {
      while (const auto message = peer.link.next())
        if (!take(peer, *message)) return false;
    } catch (const json::exception&) {
      if (peer.welcome()) lost(peer, "RankLost", "it sent what is not a message between launchers");
      return false;
    }
    open = open && peer.link.pump();
    if (!peer.welcome()) return open && now - peer.since < hello_within;
    if (!open) return lost(peer, "RankLost", peer.link.why()), false;
    if (now - peer.link.heard() < silence) return true;
    lost(peer, "NodeLost", "it has been silent for " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - peer.link.heard()).count()) + " s");
    return false;
  }

  // --- what goes ---
  void show_ranks() {
    for (const auto& peer : peers) {
      if (!peer->welcome()) continue;
      json all = json::array();
      const Dealt theirs = of(peer->node);
      for (int r = 0; r < ranks; ++r) {
        const bool ours = r >= here.first && r < here.first + here.count, their_own = r >= theirs.first && r < theirs.first + theirs.count;
        if (ours || (nodes.here == 0 && !their_own)) all.push_back(told(r, *board, !ours));
      }
      peer->link.send({{"ranks", all}});
    }
  }

  void send_waiting() {
    std::vector<json> messages;
    {
      const std::lock_guard lock(mutex);
      if (std::none_of(peers.begin(), peers.end(), [](const auto& peer) { return peer->welcome(); }) && !leaving) return;   // told when there is somebody to hear
      messages.swap(outgoing);
    }
    for (const json& message : messages)
      for (const auto& peer : peers)
        if (peer->welcome()) peer->link.send(message);
  }

  // --- the thread ---
  void accept_callers() {
    for (comm::Socket socket = comm::accept_from(listener); socket.is_open(); socket = comm::accept_from(listener)) {
      const auto strangers = std::count_if(peers.begin(), peers.end(), [](const auto& peer) { return !peer->welcome(); });
      if (strangers >= static_cast<std::ptrdiff_t>(most_strangers)) peers.erase(std::find_if(peers.begin(), peers.end(), [](const auto& peer) { return !peer->welcome(); }));
      peers.push_back(std::make_unique<Peer>(std::move(socket), false));
    }
  }

  void call_node_0(Clock::time_point now) {
    if (!peers.empty() || was_connected || now < next_call) return;
    next_call = now + retry;
    std::string why;
    comm::Socket socket = comm::connect_to(nodes.host, nodes.port, retry, why);
    if (!socket.is_open()) {
      if (calls++ % 30 == 0) LOG(INFO) << "waiting for node 0 at " << nodes.host << ":" << nodes.port << ": " << why << "; trying each second";
      return;
    }
    peers.push_back(std::make_unique<Peer>(std::move(socket), true));
    peers.back()->link.allow(longest_message);
    peers.back()->link.send({{"hello", {{"incarnation", nodes.incarnation}, {"nodes", nodes.count}, {"node", nodes.here}, {"plan", nodes.plan}}}});
  }

  void wait() const {
    std::vector<pollfd> events{{bell_of_thread, POLLIN, 0}};
    if (listener.is_open()) events.push_back({listener.descriptor(), POLLIN, 0});
    for (const auto& peer : peers) events.push_back({peer->link.socket().descriptor(), static_cast<short>(peer->link.has_more_to_send() ? POLLIN | POLLOUT : POLLIN), 0});
    poll(events.data(), events.size(), static_cast<int>(beat.count()));
    uint64_t rings = 0;
    if (read(bell_of_thread, &rings, sizeof rings) < 0) return;   // nobody rang
  }

  void run() {
    auto last = Clock::now(), next_beat = last;
    while (!leaving) {
      wait();
      const auto now = Clock::now();
      if (nodes.here == 0) accept_callers();
      else call_node_0(now);
      if (now - last > std::chrono::seconds(1))   // this process was stopped itself, or a name server was slow
        for (const auto& peer : peers) peer->link.forgive(now);
      last = now;
      for (const auto& peer : peers) peer->gone = !serve(*peer, Clock::now());   // one after the other: each may look at all
      std::erase_if(peers, [](const auto& peer) { return peer->gone; });
      was_connected = was_connected || std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer->welcome(); });
      connected = nodes.here == 0 ? static_cast<int>(met.size()) == nodes.count - 1 : was_connected;
      send_waiting();
      if (now >= next_beat) show_ranks(), next_beat = now + beat;
      for (const auto& peer : peers) peer->link.pump();
    }
    send_waiting();
    for (const auto& peer : peers)
      if (peer->welcome()) peer->link.send({{"bye", true}});
    const auto end = Clock::now() + farewell;
    while (Clock::now() < end && std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer->link.pump() && peer->link.has_more_to_send(); })) wait();
    for (const auto& peer : peers) peer->link.socket().shut();
    done = true;
  }

  const Nodes nodes;
  const std::shared_ptr<comm::StatusBoard> board;
  const milliseconds silence;
  const int ranks;
  const Dealt here;
  const int bell;                      ///< rung for the launcher
  const int bell_of_thread = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  comm::Socket listener;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<int> met;                ///< nodes that have come, there or gone
  bool was_connected = false;
  Clock::time_point next_call{};
  int calls = 0;
  std::atomic<bool> leaving{false}, done{false}, connected{false};
  std::mutex mutex;                    ///< guards the two below
  std::vector<News> fresh;
  std::vector<json> outgoing;
};

Rendezvous::Rendezvous(const Nodes& nodes, std::shared_ptr<comm::StatusBoard> board, milliseconds silence) : impl_(std::make_shared<Impl>(nodes, std::move(board), silence)) {}

void Rendezvous::start() {
  std::thread([impl = impl_] { impl->run(); }).detach();
}

Rendezvous::~Rendezvous() {
  impl_->leaving = true;
  impl_->wake();
  const auto patience = Clock::now() + 2 * farewell;
  while (!impl_->done && Clock::now() < patience) std::this_thread::sleep_for(milliseconds(1));
}

int Rendezvous::descriptor() const { return impl_->bell; }

std::vector<News> Rendezvous::news() {
  uint64_t rings = 0;
  if (read(impl_->bell, &rings, sizeof rings) < 0) return {};
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->fresh, {});
}

bool Rendezvous::connected() const { return impl_->connected; }

void Rendezvous::tell(const Failure& failure) {
  impl_->say({{"failure", told(failure)}});
}

void Rendezvous::ask_to_stop() {
  impl_->say({{"stop", true}});
}

}  // namespace pm::launch
