// SPDX-License-Identifier: Apache-2.0
// The queue of forward requests (no generation): splits them into step messages, batches small ones and joins their
// outputs. It has no thread and no ranks.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/engine/protocol/step_message.h"

namespace pm::engine {

/// A forward request with its progress.
struct QueuedForward {
  ForwardRequest request;
  std::function<void(ForwardResult)> on_done;                      ///< empty once the request has ended
  int64_t rows = 0, sent_rows = 0, done_rows = 0, done_parts = 0;  ///< rows sent, rows and parts completed
  bool cancelled = false;
  Arrays outputs;  ///< of the completed rows
};

/// Rows of one forward request that one step message runs.
struct ForwardPart {
  std::shared_ptr<QueuedForward> forward;
  int64_t first = 0, rows = 0;
};

using CompletionCallbacks = std::vector<std::function<void()>>;  ///< called after the lock is released

/// The forward requests of one scheduler. Not thread-safe.
class ForwardQueue {
 public:
  /// `step_tokens` is the token budget of one message. `split` says that rows are independent. `parts` is the least
  /// number of micro-batches for a request, as far as it has rows.
  /// A row costs its tokens, and at least `least_cost`; a row of pixels costs `image_tokens` (0: an eighth of a step).
  ForwardQueue(int64_t step_tokens, bool split, int64_t parts, int64_t least_cost = 1, int64_t image_tokens = 0)
      : step_tokens_(step_tokens), split_(split), parts_(parts), least_cost_(least_cost), image_tokens_(image_tokens) {}

  void add(ForwardRequest, std::function<void(ForwardResult)> on_done);
  int64_t waiting() const { return static_cast<int64_t>(queue_.size()); }
  int64_t open() const { return open_; }

  /// Returns the parts of the next message: one part of the first request if it exceeds the budget, otherwise all
  /// waiting requests that fit and want the same outputs. Returns nothing if no request waits.
  std::vector<ForwardPart> take(int64_t& tokens);
  /// Builds the forward job of these parts. Inputs of a request that is sent whole are moved.
  static ForwardJob make_job(const std::vector<ForwardPart>&);
  /// Stores the outputs of the parts; parts finish in the order in which they were sent.
  void finish(const std::vector<ForwardPart>&, std::vector<Arrays> outputs, CompletionCallbacks&);

  /// Marks the waiting requests with this id; drop_cancelled() ends them. Requests that are fully sent continue.
  void cancel(const std::string& id);
  void cancel_all();
  void drop_cancelled(CompletionCallbacks&);
  /// Ends the requests of these parts, for which the device has too little memory.
  void refuse(const std::vector<ForwardPart>&, const std::string& reason, CompletionCallbacks&);
  /// Ends all open requests, including those of the parts in `under_way`.
  void fail_all(const std::string& reason, const std::vector<ForwardPart>& under_way, CompletionCallbacks&);
  int64_t finished() const { return finished_; }
  int64_t failed() const { return failed_; }

 private:
  bool runs_alone(const ForwardRequest&) const;
  bool mixes_rows(const ForwardRequest&) const;
  int64_t next_rows(const QueuedForward&) const;
  void end(QueuedForward&, ForwardResult, CompletionCallbacks&);
  void fail(QueuedForward&, const std::string& reason, CompletionCallbacks&, bool too_large = false);
  const int64_t step_tokens_;
  const bool split_;
  const int64_t parts_;
  const int64_t least_cost_;
  const int64_t image_tokens_;
  std::deque<std::shared_ptr<QueuedForward>> queue_;
  int64_t open_ = 0, finished_ = 0, failed_ = 0;
};

}  // namespace pm::engine
