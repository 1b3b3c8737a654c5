// SPDX-License-Identifier: Apache-2.0
// Folds repeated events into series. Pure; event_recorder.h sends.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "controller/core/clock.h"
#include "controller/core/request.h"

namespace pm::k8s {

/// One occurrence to report as an Event.
struct Occurrence {
  Json regarding;  ///< an ObjectReference
  std::string type, reason, action, note;
};

class EventSeries {
 public:
  EventSeries(std::string controller, std::string instance)
      : controller_(std::move(controller)), instance_(std::move(instance)) {}

  /// The request that makes this occurrence known: a Create for a new one, a MergePatch of series for one that was seen
  /// within six minutes. Patches are sent for the 2nd, 4th, 8th... occurrence and once a minute; nothing in between.
  std::optional<Request> observe(const Occurrence&, Clock::Wall now);
  /// Forgets an Event that a patch did not find: the next occurrence creates one.
  void lost(const std::string& ns, const std::string& name);

 private:
  struct Series {
    std::string ns, name;
    int count = 1;
    Clock::Wall last, sent;
  };
  Request create(const Occurrence&, const Series&, Clock::Wall now) const;
  void expire(Clock::Wall now);

  const std::string controller_, instance_;
  std::map<size_t, Series> known_;  ///< by the hash of all that makes occurrences the same
  unsigned serial_ = 0;
};

/// The ObjectReference of an object.
Json reference_to(const Json& object);

}  // namespace pm::k8s
