// SPDX-License-Identifier: Apache-2.0
// The state machine of list and watch: it lists in pages, watches from the version of the list and handles failures of
// both. It is pure; all I/O is in reflector.h.
#pragma once
#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "controller/core/api.h"
#include "controller/runtime/watch_backoff.h"

namespace pm::k8s {

/// The next step: fetch a page of the list.
struct ListPage {
  std::string token;  ///< "continue" of the page before; "": the first page
  int limit = 100;  ///< objects; 0: everything in one answer. client-go takes 500: a page is held as a tree until it is
                    ///< stored, some 60 KiB an object before it is pruned
  bool operator==(const ListPage&) const = default;
};
struct StartWatch {
  std::string version;
  int timeout_seconds = 0;  ///< the server ends the watch after this
  bool operator==(const StartWatch&) const = default;
};
struct Wait {
  std::chrono::milliseconds duration{0};
  bool operator==(const Wait&) const = default;
};
using Step = std::variant<ListPage, StartWatch, Wait>;

/// A change to apply to the store.
struct Effect {
  enum class Kind { BeginList, Item, FinishList, Apply, Remove, Advance };
  Kind kind;
  Json object;          ///< for Item, Apply, Remove
  std::string version;  ///< for FinishList, Advance
  bool operator==(const Effect&) const = default;
};

/// Not thread-safe; one thread asks next(), does it, and reports with listed(), or event()... and ended().
/// Lists never name a resourceVersion: the answer is then as fresh as the store behind the API server, so a restart
/// never travels back in time.
class Watcher {
 public:
  Watcher(const Clock& clock, Uniform uniform) : clock_(clock), uniform_(uniform), backoff_(std::move(uniform)) {}

  Step next();
  /// The answer to ListPage. An expired continue token restarts the list, first with longer pages, then as a single
  /// page, which cannot expire. If that fails, for example because it exceeds the limit of the client, the list is
  /// paged again.
  std::vector<Effect> listed(Response);
  /// One event of a watch, in order. Nothing for an event without a name or a version, which no API server sends.
  std::vector<Effect> event(WatchEvent&&);
  /// The watch ended after `lasted`. The version is kept wherever the server may still know it; Gone and answers that
  /// cannot heal lead to a new list. A watch that ends within a second without an event is a failure even when it looks
  /// clean.
  void ended(const std::optional<ApiError>&, std::chrono::milliseconds lasted);

  const std::string& version() const { return version_; }

 private:
  enum class State { Listing, Watching };
  std::vector<Effect> page(Json&& list);
  void relist() { state_ = State::Listing, token_.clear(), limit_ = ListPage{}.limit; }
  void pause(double least_seconds = 0);

  const Clock& clock_;
  Uniform uniform_;
  WatchBackoff backoff_;
  State state_ = State::Listing;
  int limit_ = ListPage{}.limit;
  bool saw_event_ = false;
  std::string token_, version_;
  std::optional<Wait> wait_;
};

}  // namespace pm::k8s
