// SPDX-License-Identifier: Apache-2.0
// Keeps a store equal to a collection: performs the steps of the Watcher against the API on one thread.
#pragma once
#include <functional>
#include <stop_token>

#include "controller/core/api.h"
#include "controller/runtime/metrics.h"
#include "controller/runtime/store.h"
#include "controller/runtime/watcher.h"

namespace pm::k8s {

/// A collection to watch.
struct Collection {
  Resource resource;
  std::string ns, label_selector;
};

class Reflector {
 public:
  struct Context {
    Api& api;
    WatchApi& watches;
    const Clock& clock;
    WatchMetrics& metrics;
    Uniform uniform;
  };
  /// `changed` is called with each Change after the store reflects it, on the reflector's thread; `synced` once, after
  /// the first whole list.
  Reflector(Collection, StoreOptions, Context, std::function<void(const Change&)> changed,
            std::function<void()> synced);

  Store store() const { return writer_.reader(); }
  /// Blocks until stop.
  void run(std::stop_token stop);

 private:
  void list(const ListPage&);
  void watch(const StartWatch&, std::stop_token stop);
  void apply(std::vector<Effect>&&);
  void tell(const Change&);
  Json complete(Json&& object) const;
  Request request() const;

  const Collection collection_;
  Context context_;
  StoreWriter writer_;
  Watcher watcher_;
  std::function<void(const Change&)> changed_;
  std::function<void()> synced_;
};

}  // namespace pm::k8s
