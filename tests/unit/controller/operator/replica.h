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
#include "controller/operator/memo.h"
#include "fake_operator.h"

namespace pm::op::test {

inline const char* const collections[] = {"parallelmodels", "pods", "configmaps", "services", "poddisruptionbudgets", "nodes"};

class Replica {
 public:
  /// Lists every collection, unless `listed` is false: then list() does, one by one. `memo`: what it remembers of other processes' passes.
  explicit Replica(FakeCluster& cluster, bool listed = true, std::shared_ptr<Memo> memo = std::make_shared<Memo>());
  /// The same process at the same point, in a copy of its cluster. Its own writes must be visible to it.
  Replica(const Replica& other, FakeCluster& cluster);
  Replica(const Replica&) = delete;

  std::optional<k8s::WallTime> wake() const { return wake_; }
  bool wanted() const { return wanted_; }
  const Memo& memo() const { return *memo_; }
  /// Between two passes, and its stores hold what is in the cluster.
  bool knows_all();

  /// The answer to the list with which a watch begins, or begins again after its events were lost.
  void list(const std::string& plural);
  /// The next event of a watch; `times` as often as that. False when there is none.
  bool deliver(const std::string& plural, int times = 1);
  /// Events of a collection that it has heard of, and those that it has still to hear of.
  size_t heard(const std::string& plural) const { return streams_.at(plural).next; }
  size_t behind(const std::string& plural) const;

  /// Something is to be done now: a pass runs, or an event or a time asks for one and own writes are visible.
  bool wants();
  /// Up to the next request and no further: begins a pass when none runs. False when the pass ended instead.
  bool prepare();
  /// Sends the request that prepare() left and takes in its answer.
  void finish(Fault fault = Fault::None);
  bool between() const { return state_.has_value(); }
  const k8s::Request& request() const { return *state_->sent; }
  int requests = 0;

 private:
  struct Stream {
    k8s::StoreWriter writer;
    size_t next = 0;                    ///< number of the cluster's event
  };
  Snapshot look() const;
  void end(Done);
  void follow();

  FakeCluster& cluster_;
  k8s::OwnWrites own_;
  std::map<std::string, Stream> streams_;
  const k8s::Key key_;
  bool wanted_ = true;
  std::optional<k8s::WallTime> wake_;
  std::shared_ptr<Memo> memo_;
  std::optional<State> state_;          ///< of a running pass, with the request that it is to send
  Snapshot seen_;
};

}  // namespace pm::op::test
