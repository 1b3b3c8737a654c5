// Passes over given inputs that wait for a step, whole or in parts: which rows go next, and when a pass is done. No thread, no ranks.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/request.h"
#include "worker/engine/step.h"

namespace pm::engine {

struct Pass {
  ForwardRequest request;
  std::function<void(ForwardResult)> on_done;   ///< empty: it has ended
  int64_t rows = 0, sent = 0, done = 0, landed = 0;   ///< rows, and parts
  bool cancelled = false;
  Arrays outputs;                               ///< of the rows that are done
};

/// Rows of a pass that one message runs.
struct PassPart {
  std::shared_ptr<Pass> pass;
  int64_t first = 0, rows = 0;
};

using Ended = std::vector<std::function<void()>>;   ///< to be called once no lock is held

class Passes {
 public:
  /// `step_tokens`: of one message. `split`: rows are independent. `parts`: micro-batches that a pass goes in at least, as far as it has rows.
  Passes(int64_t step_tokens, bool split, int64_t parts) : step_tokens_(step_tokens), split_(split), parts_(parts) {}

  void add(ForwardRequest, std::function<void(ForwardResult)> on_done);
  int64_t waiting() const { return static_cast<int64_t>(queue_.size()); }
  int64_t open() const { return open_; }

  /// What makes the next message: a part of the first pass when that is larger than a step, else all that want the same of it and fit. Empty when none waits.
  std::vector<PassPart> take(int64_t& tokens);
  /// The inputs of these rows; those of a pass that goes whole are moved.
  static ForwardJob job(const std::vector<PassPart>&);
  /// Takes the outputs of the parts, in the order in which they were sent.
  void finish(const std::vector<PassPart>&, std::vector<Arrays> outputs, Ended&);

  /// Marks what waits under this id; drop_cancelled() ends it. What runs already goes on.
  void cancel(const std::string& id);
  void cancel_all();
  void drop_cancelled(Ended&);
  /// Ends the passes of these parts and what waits of them, for which the device has no memory.
  void refuse(const std::vector<PassPart>&, const std::string& reason, Ended&);
  /// Ends all that is open, also what runs in `under_way`.
  void fail_all(const std::string& reason, const std::vector<PassPart>& under_way, Ended&);
  int64_t finished() const { return finished_; }
  int64_t failed() const { return failed_; }

 private:
  bool alone(const ForwardRequest&) const;
  int64_t rows_of_next(const Pass&) const;
  void end(Pass&, ForwardResult, Ended&);
  void fail(Pass&, const std::string& reason, Ended&, bool too_large = false);
  const int64_t step_tokens_;
  const bool split_;
  const int64_t parts_;
  std::deque<std::shared_ptr<Pass>> queue_;
  int64_t open_ = 0, finished_ = 0, failed_ = 0;
};

}  // namespace pm::engine
