// A cluster, an operator in it, time, and one thing that goes wrong.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "replica.h"

namespace pm::op::test {

/// What goes wrong, once.
struct Trouble {
  enum class Kind { None, Hold, Cut, Repeat, Lag, Crash, LateLanding, Second, User };
  Kind kind = Kind::None;
  std::string plural;                   ///< of Hold, Cut, Repeat, LateLanding
  size_t at = 0;                        ///< number of the event (Hold, Cut, Repeat), of the request (the others), or events behind (Lag)
  Fault fault = Fault::None;            ///< of Crash
  std::function<void(FakeCluster&)> act;   ///< of User
  /// It waits for an event, and not for a request.
  bool by_event() const { return kind == Kind::Hold || kind == Kind::Cut || kind == Kind::Repeat; }
};

class World {
 public:
  enum class End { Rest, TooLong, Left };
  /// Where in settle() it is.
  struct Place {
    int second = 0, still = 0, silent = 0;
    int64_t before = 0;                 ///< the cluster's version when the second began
    int passes = 0;                     ///< in this second
    bool works = false;                 ///< in the middle of a second
  };
  /// Who looks on.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    /// In front of a second, or of a request that is ready to be sent: a copy of the world can be made.
    virtual void moment(const World&) {}
    /// Between two passes. True: enough is known, settle() ends.
    virtual bool leave(World&) { return false; }
    /// Between two passes of the one that took over while the first stands still. True: the world has been made what it will be at rest.
    virtual bool skip(World&) { return false; }
  };

  /// `thrifty`: a process that follows a dead one remembers what that one had worked out.
  explicit World(Trouble trouble = {}, bool thrifty = false) : trouble_(std::move(trouble)), thrifty_(thrifty) {
    cluster.logs = false;
    replica_ = std::make_unique<Replica>(cluster);
  }
  /// A copy of a world without trouble, at one of its moments, in which this goes wrong.
  World(const World& calm, Trouble trouble);
  World(const World&) = delete;
  /// Becomes a copy of the other, which keeps its own trouble.
  void become(const World& other);
  /// The cluster and the one process become those of a world at rest.
  void rest_as(const World& other);

  FakeCluster cluster;
  Watcher* watcher = nullptr;
  /// Until nothing has happened for three seconds and nobody waits for anything; TooLong when that takes more than `limit` seconds.
  End settle(int limit = most_seconds);
  /// The same from where a copy was made.
  End go_on(int limit = most_seconds);
  static constexpr int most_seconds = 600;

  const Place& place() const { return place_; }
  Replica& replica() { return *replica_; }
  /// The trouble is over: what comes depends on the cluster and the one process alone. Or on how far it is behind, which never ends.
  bool over() const { return (met_ || trouble_.kind == Trouble::Kind::None || trouble_.kind == Trouble::Kind::Lag) && !holds_ && !second_; }
  /// It lags, and hears everything until something happens.
  bool flushes() const { return flush_; }
  /// It has begun.
  bool met() const { return met_; }
  int requests = 0;                     ///< of the operator, all lives together
  std::map<std::string, size_t> heard;  ///< events delivered, by collection
  size_t most_behind = 0;               ///< events of a collection that were to be heard of, at most, while it lagged

 private:
  void deliver();
  void one(Replica&);
  void trouble(Replica&);
  void succeed(bool listed = true);
  bool rests();
  bool event_trouble(const std::string& plural);

  Trouble trouble_;
  const bool thrifty_;
  bool met_ = false, holds_ = false, flush_ = false;
  Place place_;
  std::unique_ptr<Replica> replica_, second_;
};

}  // namespace pm::op::test
