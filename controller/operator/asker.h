// Asks loading pods how far they are, beside the passes: a pod that does not answer holds up nobody.
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

/// Asks the ops port of a pod for /status.
class StatusProbe {
 public:
  virtual ~StatusProbe() = default;
  /// The JSON, or nothing when there is no good answer within a second. Thread-safe.
  virtual std::optional<k8s::Json> ask(const std::string& pod_ip) = 0;
};

/// Over plain HTTP to port 8001: at most 1 s and 64 KiB.
class HttpStatusProbe final : public StatusProbe {
 public:
  std::optional<k8s::Json> ask(const std::string& pod_ip) override;
};

/// Keeps the last answer of each pod and asks again when it is two seconds old, on threads of its own. Thread-safe.
class Asker {
 public:
  /// Told on a thread of the asker when a pod says something else than before: the ParallelModel that asked.
  using News = std::function<void(const k8s::Key& model)>;
  static constexpr int most_at_once = 8;

  Asker(StatusProbe& probe, const k8s::Clock& clock, News news, int threads = most_at_once);
  /// Waits for the questions under way, a second at most.
  ~Asker();
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  /// What the pod said last; nothing while it has not answered yet, or if its last answer was none. `ready`: its Ready condition; when that turns true, an older answer does
  /// not count any more, for it is the moment at which bytes become final, and the new one is waited for, 50 ms at most.
  std::optional<k8s::Json> latest(const k8s::Json& pod, bool ready, const k8s::Key& model);
  /// The model asks for nothing but these pods any more: what others of it said is forgotten.
  void forget_others(const k8s::Key& model, const std::vector<k8s::ObjectPtr>& pods);

 private:
  struct Answer {
    k8s::Clock::Steady asked;
    bool pending = false, ready = false;    ///< asked and not answered; asked since it is ready
    bool unwanted = false;                  ///< to be forgotten when it is answered
    bool again = false, awaited = false;    ///< it became ready meanwhile; a pass waits for the answer
    std::optional<k8s::Json> json;
  };
  struct Question { std::string uid, ip; k8s::Key model; };

  using Answers = std::map<std::string, Answer>;   ///< by pod uid

  void put(Answer&, Question);
  void work(std::stop_token stop);
  void drop(const Question&);

  StatusProbe& probe_;
  const k8s::Clock& clock_;
  const News news_;
  std::mutex mutex_;
  std::condition_variable_any changed_, answered_;
  std::map<k8s::Key, Answers> answers_;     ///< by model; of pods that its last pass asked for
  std::deque<Question> questions_;
  std::vector<std::jthread> threads_;       // last: they use the rest
};

}  // namespace pm::op
