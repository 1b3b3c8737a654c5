// See passes.h.
#include "worker/server/passes.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#include "worker/base/error.h"
#include "worker/server/api_error.h"

namespace pm::server {
namespace {

using std::chrono::steady_clock;

constexpr size_t kAtOnce = 4;
constexpr std::chrono::milliseconds kLook{100};   // between looks at the client and the server's state

struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::pair<size_t, engine::ForwardResult>> results;
};

/// Passes under way. Its end cancels them, so no way out of a handler leaves one behind.
class Flight {
 public:
  Flight(const Serving& serving, const Call& call, std::vector<PassInputs> passes)
      : serving_(serving), call_(call), passes_(std::move(passes)), mailbox_(std::make_shared<Mailbox>()), outputs_(passes_.size()) {}
  ~Flight() {
    for (size_t i : open_) serving_.engine.cancel(id(i));
  }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  std::vector<Arrays> run() {
    while (next_ < passes_.size() || !open_.empty()) {
      submit();
      wait();
    }
    return std::move(outputs_);
  }

 private:
  std::string id(size_t i) const { return call_.request.id + "-" + std::to_string(i); }

  void submit() {
    for (; next_ < passes_.size() && open_.size() < kAtOnce; ++next_) {
      PassInputs& pass = passes_[next_];
      engine::ForwardRequest request{id(next_), std::move(pass.inputs), pass.hidden_states, pass.attentions, std::move(pass.outputs)};
      const Arrays kept = open_.empty() ? Arrays() : request.inputs;   // for another try when the queue is full of others' requests
      const auto wanted = request.outputs;
      try {
        serving_.engine.forward(std::move(request), [mailbox = mailbox_, i = next_](engine::ForwardResult result) {
          {
            std::lock_guard lock(mailbox->mutex);
            mailbox->results.emplace_back(i, std::move(result));
          }
          mailbox->arrived.notify_one();
        });
      } catch (const Error& error) {
        if (error.reason != "QueueFull" || open_.empty()) throw;
        pass.inputs = kept;
        pass.outputs = wanted;
        return;
      }
      open_.insert(next_);
    }
  }

  void wait() {
    std::deque<std::pair<size_t, engine::ForwardResult>> taken;
    {
      std::unique_lock lock(mailbox_->mutex);
      mailbox_->arrived.wait_for(lock, kLook, [&] { return !mailbox_->results.empty(); });
      taken.swap(mailbox_->results);
    }
    for (auto& [i, result] : taken) {
      open_.erase(i);
      if (result.finish == engine::Finish::Failed && result.too_large) {
        throw ApiError(413, "out_of_memory", "the inputs are too many for the device's memory: " + result.reason + " Send fewer or shorter ones at once.");
      }
      if (result.finish == engine::Finish::Failed) throw unavailable("rank_lost", "the pass was lost (" + result.reason + "); the group restarts", 5);
      if (result.finish == engine::Finish::Cancelled) throw unavailable("draining", "the server is shutting down; send the request again");
      outputs_[i] = std::move(result.outputs);
    }
    if (!taken.empty()) return;
    if (serving_.stopping) throw unavailable("draining", "the server is shutting down; send the request again");
    if (call_.request.client_gone && call_.request.client_gone()) throw ApiError(499, "client_gone", "the client closed the connection");
  }

  const Serving& serving_;
  const Call& call_;
  std::vector<PassInputs> passes_;
  std::shared_ptr<Mailbox> mailbox_;   ///< shared with the engine's callbacks, which may outlive us
  std::vector<Arrays> outputs_;
  std::set<size_t> open_;
  size_t next_ = 0;
};

}  // namespace

std::vector<Arrays> run_passes(const Serving& serving, const Call& call, std::vector<PassInputs> passes) {
  const auto arrived = steady_clock::now();
  const auto finished = [&](const char* reason) {
    serving.metrics.finished(reason, std::chrono::duration<double>(steady_clock::now() - arrived).count());
  };
  try {
    auto outputs = Flight(serving, call, std::move(passes)).run();
    finished("stop");
    return outputs;
  } catch (const ApiError& error) {
    finished(error.status == 499 ? "cancelled" : "failed");
    throw;
  }
}

const std::vector<float>& floats_of(const Arrays& outputs, const std::string& name, size_t dimensions) {
  const auto found = outputs.find(name);
  if (found == outputs.end()) throw std::logic_error("the pass brought no " + name);
  const auto* values = std::get_if<std::vector<float>>(&found->second.values);
  if (!values || found->second.shape.size() != dimensions) throw std::logic_error(name + " has not " + std::to_string(dimensions) + " dimensions of floats");
  return *values;
}

}  // namespace pm::server
