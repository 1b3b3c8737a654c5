// SPDX-License-Identifier: Apache-2.0
// Writes events.k8s.io/v1 Events for people: best effort, repeated ones folded into a series, never in the way of a
// reconcile.
#pragma once
#include <memory>
#include <string>

#include "controller/core/api.h"
#include "controller/core/clock.h"

namespace pm::k8s {

/// Sends events on its own thread. Thread-safe.
class EventRecorder {
 public:
  enum class Type { Normal, Warning };
  /// `controller` becomes reportingController ("parallelmodel.dev/controller"), `instance` (the pod's name)
  /// reportingInstance.
  EventRecorder(Api& api, const Clock& clock, std::string controller, std::string instance);
  /// Sends what is queued for at most one second, then drops the rest.
  ~EventRecorder();

  /// Returns at once. `regarding` is the whole object (apiVersion, kind and metadata are read). `reason` and `action`
  /// are CamelCase words of at most 128 bytes; `note` is a sentence, cut at 1,024 bytes. The same (regarding, type,
  /// reason, action, note) within six minutes becomes one Event whose series.count grows. When 1,024 events wait,
  /// further ones are dropped.
  void record(const Json& regarding, Type type, const std::string& reason, const std::string& action,
              const std::string& note);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::k8s
