// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/forward_runner.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#include "worker/base/error.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using std::chrono::steady_clock;

constexpr size_t max_in_flight = 4;
constexpr std::chrono::milliseconds poll_interval{100};  // between checks of the client and of the server's state

struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::pair<size_t, engine::ForwardResult>> results;
};

/// Submits batches and collects their outputs. The destructor cancels the batches in flight, so a handler that exits
/// early leaves none behind.
class ForwardRunner {
 public:
  ForwardRunner(const ServerContext& context, const RoutedRequest& call, std::vector<ForwardBatch> batches)
      : context_(context),
        call_(call),
        batches_(std::move(batches)),
        mailbox_(std::make_shared<Mailbox>()),
        outputs_(batches_.size()) {}
  ~ForwardRunner() {
    for (size_t i : open_) context_.engine.cancel(id(i));
  }
  ForwardRunner(const ForwardRunner&) = delete;
  ForwardRunner& operator=(const ForwardRunner&) = delete;

  std::vector<Arrays> run() {
    while (next_ < batches_.size() || !open_.empty()) {
      submit();
      wait();
    }
    return std::move(outputs_);
  }

 private:
  std::string id(size_t i) const { return call_.request.id + "-" + std::to_string(i); }

  void submit() {
    for (; next_ < batches_.size() && open_.size() < max_in_flight; ++next_) {
      ForwardBatch& batch = batches_[next_];
      engine::ForwardRequest request{id(next_), std::move(batch.inputs), batch.hidden_states, batch.attentions,
                                     std::move(batch.outputs)};
      request.adapter = batch.adapter;
      const Arrays retry_inputs =
          open_.empty() ? Arrays() : request.inputs;  // kept for a retry when other requests fill the queue
      const auto retry_outputs = request.outputs;
      try {
        context_.engine.forward(std::move(request), [mailbox = mailbox_, i = next_](engine::ForwardResult result) {
          {
            std::lock_guard lock(mailbox->mutex);
            mailbox->results.emplace_back(i, std::move(result));
          }
          mailbox->arrived.notify_one();
        });
      } catch (const Error& error) {
        if (error.reason != Reason::QueueFull || open_.empty()) throw;
        batch.inputs = retry_inputs;
        batch.outputs = retry_outputs;
        return;
      }
      open_.insert(next_);
    }
  }

  void wait() {
    std::deque<std::pair<size_t, engine::ForwardResult>> taken;
    {
      std::unique_lock lock(mailbox_->mutex);
      mailbox_->arrived.wait_for(lock, poll_interval, [&] { return !mailbox_->results.empty(); });
      taken.swap(mailbox_->results);
    }
    for (auto& [i, result] : taken) {
      open_.erase(i);
      if (result.finish == engine::Finish::Failed && result.too_large) {
        throw ApiError(413, "out_of_memory",
                       "the inputs do not fit into the device's memory: " + result.reason +
                           " Send fewer or shorter inputs in one request.");
      }
      if (result.finish == engine::Finish::Failed)
        throw unavailable("rank_lost", "the forward pass was lost (" + result.reason + "); the replica restarts", 5);
      if (result.finish == engine::Finish::Cancelled)
        throw unavailable("draining", "the server is shutting down; send the request again");
      outputs_[i] = std::move(result.outputs);
    }
    if (!taken.empty()) return;
    if (context_.stopping) throw unavailable("draining", "the server is shutting down; send the request again");
    if (call_.request.client_gone && call_.request.client_gone())
      throw ApiError(499, "client_gone", "the client closed the connection");
  }

  const ServerContext& context_;
  const RoutedRequest& call_;
  std::vector<ForwardBatch> batches_;
  std::shared_ptr<Mailbox> mailbox_;  ///< shared with the engine's callbacks, which may outlive this object
  std::vector<Arrays> outputs_;
  std::set<size_t> open_;
  size_t next_ = 0;
};

}  // namespace

std::vector<Arrays> run_forward_passes(const ServerContext& context, const RoutedRequest& call,
                                       std::vector<ForwardBatch> batches) {
  return ForwardRunner(context, call, std::move(batches)).run();
}

std::vector<Arrays> run_forward_batches(const ServerContext& context, const RoutedRequest& call,
                                        std::vector<ForwardBatch> batches) {
  const auto arrived = steady_clock::now();
  const auto finished = [&](const char* reason) {
    context.metrics.finished(reason, std::chrono::duration<double>(steady_clock::now() - arrived).count());
  };
  try {
    auto outputs = run_forward_passes(context, call, std::move(batches));
    finished("stop");
    return outputs;
  } catch (const ApiError& error) {
    finished(error.status == 499 ? "cancelled" : "failed");
    throw;
  }
}

const std::vector<float>& float_values(const Arrays& outputs, std::string_view name, size_t dimensions) {
  const std::string key(name);
  const auto found = outputs.find(key);
  if (found == outputs.end()) throw std::logic_error("the forward pass returned no " + key);
  const auto* values = std::get_if<std::vector<float>>(&found->second.values);
  if (!values || found->second.shape.size() != dimensions)
    throw std::logic_error(key + " is not a float tensor of " + std::to_string(dimensions) + " dimensions");
  return *values;
}

}  // namespace pm::server
