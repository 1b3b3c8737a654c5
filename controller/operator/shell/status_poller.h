// SPDX-License-Identifier: Apache-2.0
// Declares the poller of /status of loading pods. It runs beside the reconciles, so an unresponsive pod delays none.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "controller/core/clock.h"
#include "controller/core/object.h"

namespace pm::op {

/// Reads /status from the admin port of a pod.
class StatusProbe {
 public:
  virtual ~StatusProbe() = default;
  /// Returns the JSON, or nullopt without a valid response within a second. Thread-safe.
  virtual std::optional<k8s::Json> fetch_status(const std::string& pod_ip) = 0;
};

/// Uses plain HTTP to port 8001, for at most 1 s and 64 KiB.
class HttpStatusProbe final : public StatusProbe {
 public:
  std::optional<k8s::Json> fetch_status(const std::string& pod_ip) override;
};

/// Caches the last response of each pod and polls again when it is two seconds old, on its own threads. Thread-safe.
class StatusPoller {
 public:
  /// Called on a thread of the poller with the ParallelModel of a pod whose response changed.
  using OnChange = std::function<void(const k8s::Key& model)>;
  static constexpr int max_concurrent = 8;

  StatusPoller(StatusProbe& probe, const k8s::Clock& clock, OnChange on_change, int threads = max_concurrent);
  /// Waits for running requests, at most a second.
  ~StatusPoller();
  StatusPoller(const StatusPoller&) = delete;
  StatusPoller& operator=(const StatusPoller&) = delete;

  /// Returns the last response of a pod; nullopt before the first one, or when the last poll failed. `ready` is its
  /// Ready condition. When that becomes true, memory figures become final: an older response is dropped, and the call
  /// waits at most 50 ms for a new one.
  std::optional<k8s::Json> latest(const k8s::Json& pod, bool ready, const k8s::Key& model);
  /// Drops the responses of all other pods of the model.
  void forget_others(const k8s::Key& model, const std::vector<k8s::ObjectPtr>& pods);

 private:
  struct Answer {
    k8s::Clock::Steady requested_at;
    bool pending = false, ready = false;   ///< a request is queued or running; polled since it is ready
    bool obsolete = false;                 ///< to be dropped when the response arrives
    bool repoll = false, awaited = false;  ///< it became ready during the request; a reconcile waits for it
    std::optional<k8s::Json> json;
  };
  struct PollRequest {
    std::string uid, ip;
    k8s::Key model;
  };

  using Answers = std::map<std::string, Answer>;  ///< by pod uid

  void enqueue(Answer&, PollRequest);
  void poll_loop(std::stop_token stop);
  void drop(const PollRequest&);

  StatusProbe& probe_;
  const k8s::Clock& clock_;
  const OnChange on_change_;
  std::mutex mutex_;
  std::condition_variable_any changed_, answered_;
  std::map<k8s::Key, Answers> answers_;  ///< by model; of the pods that its last reconcile polled
  std::deque<PollRequest> requests_;
  std::vector<std::jthread> threads_;  // the last member: the threads use the others
};

}  // namespace pm::op
