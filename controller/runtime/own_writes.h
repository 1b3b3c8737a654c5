// SPDX-License-Identifier: Apache-2.0
// Guarantees read-your-writes for a reconcile: it records the writes of a key and whether the stores reflect them.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/selector.h"
#include "controller/runtime/store.h"

namespace pm::k8s {

/// Without this, a slow watch makes a controller create a child twice or count a rollout step twice. Source: the
/// controllers of Kubernetes since 1.36 (KEP-5647). Thread-safe.
class OwnWrites final : public Api {
 public:
  /// A watched collection, and the primary keys that an object of it concerns.
  struct Watched {
    Resource resource;
    std::string ns;
    std::vector<LabelTerm> selector;
    Store store;
    std::function<std::vector<Key>(const Json&)> keys;
  };

  explicit OwnWrites(Api& inner) : inner_(inner) {}
  /// Before the first send.
  void add(Watched watched) { watched_.push_back(std::move(watched)); }

  Response send(const Request&) override;
  /// True when every store shows at least what was last written for this key.
  bool visible(const Key&);

 private:
  void remember(const Request&, const Json& object);

  Api& inner_;
  std::vector<Watched> watched_;
  std::mutex mutex_;
  std::map<Key, std::map<size_t, std::string>>
      pending_;  ///< key -> index in watched_ -> version that its store must reach
};

}  // namespace pm::k8s
