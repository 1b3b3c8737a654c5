// SPDX-License-Identifier: Apache-2.0
// An in-memory API server: objects with resourceVersions, paged lists, watches from a version, and injected faults.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/clock.h"
#include "controller/core/object.h"

namespace pm::k8s::test {

struct ManualClock final : Clock {
  std::atomic<int64_t> ms{0};
  Steady now() const override { return Steady(std::chrono::milliseconds(ms.load())); }
  Wall wall() const override {
    return Wall(std::chrono::seconds(1'700'000'000) + std::chrono::milliseconds(ms.load()));
  }
};

/// Thread-safe.
class FakeCluster final : public Api, public WatchApi {
 public:
  Response send(const Request&) override;
  std::optional<ApiError> watch(const Request&, const std::function<bool(WatchEvent&&)>& sink,
                                std::stop_token stop) override;

  /// Writes an object as a user would, by its metadata.name and namespace.
  Json put(const Resource&, Json object);
  void remove(const Resource&, const Key&);
  /// Called before each send or watch; a returned error replaces the response.
  std::function<std::optional<ApiError>(const Request&)> fault;
  /// Delays events while true.
  void freeze_watches(bool);
  /// Ends all open watches cleanly.
  void end_watches();
  /// Forgets history: watches from before now get 410.
  void compact();
  std::vector<Request> sent() const;
  size_t count(Verb, const Resource&) const;
  size_t watches_started() const;

 private:
  struct Entry {
    std::string plural;
    WatchEvent event;
    long version;
  };
  Json store(const Resource&, Json object);
  Response list(const Request&);
  Response write(const Request&);
  bool wanted(const Request&, const Entry&) const;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::map<Key, Json>> objects_;  ///< by plural
  std::vector<Entry> history_;
  std::vector<Request> sent_;
  long version_ = 100, compacted_ = 0;
  size_t generation_ = 0, watches_ = 0;
  bool frozen_ = false;
};

}  // namespace pm::k8s::test
