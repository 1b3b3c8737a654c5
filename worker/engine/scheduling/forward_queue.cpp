// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/scheduling/forward_queue.h"

#include <algorithm>
#include <utility>

#include "worker/engine/protocol/batch_rows.h"

namespace pm::engine {

void ForwardQueue::add(ForwardRequest request, std::function<void(ForwardResult)> on_done) {
  auto forward = std::make_shared<QueuedForward>();
  forward->rows = num_rows(request.inputs);
  forward->request = std::move(request);
  forward->on_done = std::move(on_done);
  queue_.push_back(std::move(forward));
  ++open_;
}

/// Returns true if the rows of outputs are not those of inputs, so that the request is neither split nor joined: texts
/// beside images have rows of their own.
bool ForwardQueue::mixes_rows(const ForwardRequest& request) const {
  return !split_ || (request.inputs.contains("pixel_values") && request.inputs.contains("input_ids"));
}

/// Returns true if the request needs a message of its own. Captured tensors cover all rows of a message.
bool ForwardQueue::runs_alone(const ForwardRequest& request) const {
  return mixes_rows(request) || request.hidden_states || request.attentions;
}

int64_t ForwardQueue::next_rows(const QueuedForward& forward) const {
  // samples of audio stay together: the perplexity of a codebook is one number of all rows
  const Arrays& inputs = forward.request.inputs;
  if (mixes_rows(forward.request) || inputs.contains("input_values") || inputs.contains(image_grids))
    return forward.rows - forward.sent_rows;
  const int64_t fit = std::min(rows_per_step(inputs, forward.sent_rows, step_tokens_, image_tokens_),
                               std::max<int64_t>(1, step_tokens_ / std::max<int64_t>(1, least_cost_))),
                part = std::max<int64_t>(1, (forward.rows + parts_ - 1) / parts_);
  return std::min({fit, part, std::max<int64_t>(1, forward.rows - forward.sent_rows)});
}

std::vector<ForwardPart> ForwardQueue::take(int64_t& tokens) {
  std::vector<ForwardPart> taken;
  int64_t token_budget = step_tokens_;
  for (auto it = queue_.begin(); it != queue_.end();) {
    QueuedForward& forward = **it;
    const ForwardRequest& request = forward.request;
    const int64_t left = forward.rows - forward.sent_rows,
                  cost = std::max(row_tokens(request.inputs, step_tokens_, image_tokens_),
                                  std::min(least_cost_, step_tokens_));
    if (!taken.empty() && (runs_alone(request) || request.outputs != taken.front().forward->request.outputs ||
                           request.adapter != taken.front().forward->request.adapter || left * cost > token_budget ||
                           forward.sent_rows > 0)) {
      ++it;
      continue;
    }
    const int64_t rows = next_rows(forward);
    const bool last = runs_alone(request) || rows < left;
    token_budget -= rows * cost;
    tokens += rows * cost;
    taken.push_back({*it, forward.sent_rows, rows});
    forward.sent_rows += rows;
    std::shared_ptr<QueuedForward> rest = forward.sent_rows < forward.rows ? *it : nullptr;
    it = queue_.erase(it);
    if (rest) {
      queue_.push_back(std::move(rest));  // a large request goes to the end, so that it does not delay others
      break;
    }
    if (last || token_budget <= 0) break;
  }
  return taken;
}

ForwardJob ForwardQueue::make_job(const std::vector<ForwardPart>& parts) {
  const ForwardRequest& first = parts.front().forward->request;
  ForwardJob job{{}, first.hidden_states, first.attentions, first.outputs, first.adapter ? first.adapter->slot : 0};
  for (const ForwardPart& part : parts) {
    Arrays& inputs = part.forward->request.inputs;
    job.inputs.push_back(part.rows == part.forward->rows ? std::move(inputs)
                                                         : slice_rows(inputs, part.first, part.rows));
  }
  return job;
}

void ForwardQueue::end(QueuedForward& forward, ForwardResult result, CompletionCallbacks& ended) {
  ended.push_back([on_done = std::exchange(forward.on_done, nullptr),
                   result = std::make_shared<ForwardResult>(std::move(result))] { on_done(std::move(*result)); });
  --open_;
}

void ForwardQueue::finish(const std::vector<ForwardPart>& parts, std::vector<Arrays> outputs,
                          CompletionCallbacks& ended) {
  for (size_t i = 0; i < parts.size(); ++i) {
    QueuedForward& forward = *parts[i].forward;
    if (!forward.on_done) continue;  // the request ended while its parts were in flight
    if (forward.request.by_micro_batch) {
      for (auto& [name, array] : outputs.at(i))
        forward.outputs["micro_batches." + std::to_string(forward.done_parts) + "." + name] = std::move(array);
    } else {
      append_rows(forward.outputs, std::move(outputs.at(i)));
    }
    ++forward.done_parts;
    forward.done_rows += parts[i].rows;
    if (forward.done_rows < forward.rows) continue;
    ++finished_;
    end(forward, {std::move(forward.outputs), Finish::Stop, {}}, ended);
  }
}

void ForwardQueue::cancel(const std::string& id) {
  for (const auto& forward : queue_)
    if (forward->request.id == id) forward->cancelled = true;
}

void ForwardQueue::cancel_all() {
  for (const auto& forward : queue_) forward->cancelled = true;
}

void ForwardQueue::drop_cancelled(CompletionCallbacks& ended) {
  for (const auto& forward : queue_)
    if (forward->cancelled) end(*forward, {{}, Finish::Cancelled, {}}, ended);
  std::erase_if(queue_, [](const auto& forward) { return forward->cancelled; });
}

void ForwardQueue::fail(QueuedForward& forward, const std::string& reason, CompletionCallbacks& ended, bool too_large) {
  if (!forward.on_done) return;
  ++failed_;
  end(forward, {{}, Finish::Failed, reason, too_large}, ended);
}

void ForwardQueue::refuse(const std::vector<ForwardPart>& parts, const std::string& reason,
                          CompletionCallbacks& ended) {
  for (const ForwardPart& part : parts) {
    fail(*part.forward, reason, ended, /*too_large=*/true);
    std::erase(queue_, part.forward);
  }
}

void ForwardQueue::fail_all(const std::string& reason, const std::vector<ForwardPart>& under_way,
                            CompletionCallbacks& ended) {
  for (const ForwardPart& part : under_way) fail(*part.forward, reason, ended);
  for (const auto& forward : queue_) fail(*forward, reason, ended);
  queue_.clear();
}

}  // namespace pm::engine
