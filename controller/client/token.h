// SPDX-License-Identifier: Apache-2.0
// Provides the bearer token and reads its file again regularly, because kubelets rotate it.
#pragma once
#include <mutex>
#include <optional>
#include <string>

#include "controller/client/cluster_config.h"
#include "controller/core/clock.h"

namespace pm::k8s {

/// Thread-safe.
class Token {
 public:
  Token(Source source, const Clock& clock) : source_(std::move(source)), clock_(clock) {}
  /// "" when there is none. A file is read again when the last reading is older than 60 s; while it cannot be read the
  /// old token stays.
  std::string get();
  /// After a 401: the next get() reads the file whatever its age.
  void expire();

 private:
  const Source source_;
  const Clock& clock_;
  std::mutex mutex_;
  std::string value_;
  std::optional<Clock::Steady> read_at_;
};

}  // namespace pm::k8s
