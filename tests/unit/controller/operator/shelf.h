// An API server that shows what was put into it, as text, and takes no writes: for controllers that have nothing to do.
#pragma once
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/clock.h"
#include "controller/operator/reconciler.h"

namespace pm::op::test {

class Shelf final : public k8s::Api, public k8s::WatchApi {
 public:
  void put(const std::string& plural, const k8s::Json& object) { texts_[plural].push_back(object.dump()); }
  const std::vector<std::string>& texts(const std::string& plural) { return texts_[plural]; }

  /// Lists in pages; anything else is counted and refused.
  k8s::Response send(const k8s::Request&) override;
  /// Silent until stopped.
  std::optional<k8s::ApiError> watch(const k8s::Request&, const std::function<bool(k8s::WatchEvent&&)>&, std::stop_token stop) override;

  std::atomic<int> others = 0;            ///< requests that were no list
  std::atomic<size_t> longest_page = 0;   ///< bytes of the longest list that was asked for

 private:
  std::map<std::string, std::vector<std::string>> texts_;   ///< by plural
};

/// ParallelModels at rest, each with so many groups of one rank, on so many nodes: what a real cluster would show of them.
struct Rest {
  int models = 1, groups = 1, nodes = 1;
};
void fill(Shelf&, const Rest&);

/// The operator over a shelf, without what asks pods.
class Resident {
 public:
  explicit Resident(Shelf&);
  /// Lists everything and passes each ParallelModel once, on `workers` threads.
  void settle(int models, int workers);
  k8s::Result pass(int model);

 private:
  struct StillClock final : k8s::Clock {
    Steady now() const override { return Steady(std::chrono::hours(1)); }
    Wall wall() const override;
  };
  struct Silence final : StatusProbe {
    std::optional<k8s::Json> ask(const std::string&) override { return std::nullopt; }
  };
  StillClock clock_;
  prometheus::Registry registry_;
  Silence silence_;
  k8s::Controller controller_;
  k8s::EventRecorder events_;
  Reconciler reconciler_;
};

}  // namespace pm::op::test
