// SPDX-License-Identifier: Apache-2.0
// Simulates a read-only API server that stores objects as text, for controllers that are idle.
#pragma once
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/clock.h"
#include "controller/operator/shell/reconciler.h"

namespace pm::op::test {

class StaticApiServer final : public k8s::Api, public k8s::WatchApi {
 public:
  void put(const std::string& plural, const k8s::Json& object) { texts_[plural].push_back(object.dump()); }
  const std::vector<std::string>& texts(const std::string& plural) { return texts_[plural]; }

  /// Answers lists in pages; counts and refuses any other request.
  k8s::Response send(const k8s::Request&) override;
  /// Sends no event until stopped.
  std::optional<k8s::ApiError> watch(const k8s::Request&, const std::function<bool(k8s::WatchEvent&&)>&,
                                     std::stop_token stop) override;

  std::atomic<int> others = 0;           ///< requests other than lists
  std::atomic<size_t> longest_page = 0;  ///< bytes of the longest page

 private:
  std::map<std::string, std::vector<std::string>> texts_;  ///< by plural
};

/// The size of a cluster of idle ParallelModels, each with so many replicas of one rank, on so many nodes.
struct IdleModels {
  int models = 1, replicas = 1, nodes = 1;
};
void fill(StaticApiServer&, const IdleModels&);

/// The operator on a StaticApiServer, without polls of pods.
class IdleOperator {
 public:
  explicit IdleOperator(StaticApiServer&);
  /// Lists everything and reconciles each ParallelModel once, on `workers` threads.
  void settle(int models, int workers);
  k8s::Result reconcile(int model);

 private:
  struct FixedClock final : k8s::Clock {
    Steady now() const override { return Steady(std::chrono::hours(1)); }
    Wall wall() const override;
  };
  struct SilentStatusProbe final : StatusProbe {
    std::optional<k8s::Json> fetch_status(const std::string&) override { return std::nullopt; }
  };
  FixedClock clock_;
  prometheus::Registry registry_;
  SilentStatusProbe status_probe_;
  k8s::Controller controller_;
  k8s::EventRecorder events_;
  Reconciler reconciler_;
};

}  // namespace pm::op::test
