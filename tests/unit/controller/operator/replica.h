// One process of the operator without threads: the real stores, guard of own writes, queue and step machine, fed by hand. Every moment at which
// something may go wrong between it and the API server is a call here.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "controller/runtime/own_writes.h"
#include "controller/runtime/store.h"
#include "fake_cluster.h"

namespace pm::op::test {

inline const char* const collections[] = {"parallelmodels", "pods", "configmaps", "services", "poddisruptionbudgets", "nodes"};

class Replica {
 public:
  /// Lists every collection, unless `listed` is false: then list() does, one by one.
  explicit Replica(FakeCluster& cluster, bool listed = true);
  /// One that knows all and waits for this time.
  Replica(FakeCluster& cluster, std::optional<k8s::WallTime> wake);
  std::optional<k8s::WallTime> wake() const { return wake_; }

  /// The answer to the list with which a watch begins, or begins again after its events were lost.
  void list(const std::string& plural);
  /// The next event of a watch; `times` as often as that. False when there is none.
  bool deliver(const std::string& plural, int times = 1);
  /// All events that have happened, of all collections.
  void catch_up();
  /// Events that a collection has still to hear of.
  size_t behind(const std::string& plural) const;

  /// Something is to be done now: a pass runs, or an event or a time asks for one and own writes are visible.
  bool wants();
  /// Up to the next request and no further: begins a pass when none runs. False when the pass ended instead.
  bool prepare();
  /// Sends the request that prepare() left and takes in its answer.
  void finish(Fault fault = Fault::None);
  bool between() const { return sent_.has_value(); }
  const k8s::Request& request() const { return *sent_; }
  int requests = 0;

 private:
  struct Stream {
    k8s::StoreWriter writer;
    size_t next = 0;                    ///< index into the cluster's events of the collection
  };
  Snapshot look() const;
  void end(Done);

  FakeCluster& cluster_;
  k8s::OwnWrites own_;
  std::map<std::string, Stream> streams_;
  const k8s::Key key_;
  bool wanted_ = true;
  std::optional<k8s::WallTime> wake_;
  std::shared_ptr<Memo> memo_ = std::make_shared<Memo>();
  std::optional<State> state_;          ///< of a running pass
  Snapshot seen_;
  std::optional<k8s::Request> sent_;
};

/// What goes wrong, once.
struct Trouble {
  enum class Kind { None, Hold, Cut, Repeat, Lag, Crash, LateLanding, Second, User };
  Kind kind = Kind::None;
  std::string plural;                   ///< of Hold, Cut, Repeat, LateLanding
  size_t at = 0;                        ///< number of the event (Hold, Cut, Repeat), of the request (the others), or events behind (Lag)
  Fault fault = Fault::None;            ///< of Crash
  std::function<void(FakeCluster&)> act;   ///< of User
};

/// A cluster, an operator in it, time, and one trouble.
class World {
 public:
  explicit World(Trouble trouble = {}) : trouble_(std::move(trouble)) { replica_ = std::make_unique<Replica>(cluster); }
  FakeCluster cluster;
  /// A world in which nothing is going on.
  struct Rest {
    FakeCluster cluster;
    std::optional<k8s::WallTime> wake;
    int requests = 0;
    std::map<std::string, size_t> heard;
    Json state;
  };
  Rest rest() const { return {cluster, replica_->wake(), requests, heard, state()}; }
  void resume(const Rest&);
  /// What its future depends on, when it is at rest.
  Json state() const { return {cluster.state(), replica_->wake() ? k8s::format_time(*replica_->wake()) : ""}; }
  /// Until nothing has happened for three seconds and nobody waits for anything; false when that takes more than `limit` seconds.
  bool settle(int limit = 600);
  /// The trouble has happened.
  bool met() const { return met_; }
  int requests = 0;                     ///< of the operator, all lives together
  std::map<std::string, size_t> heard;  ///< events delivered, by collection

 private:
  void deliver();
  void work();
  void one(Replica&);
  bool troubled(Trouble::Kind kind) const { return trouble_.kind == kind && !met_; }
  bool event_trouble(const std::string& plural);

  Trouble trouble_;
  bool met_ = false, holds_ = false, flush_ = false;
  std::unique_ptr<Replica> replica_, second_;
};

}  // namespace pm::op::test
