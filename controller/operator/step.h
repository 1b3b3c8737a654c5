// Reconciliation as a pure step machine: (state, snapshot, response) -> the next request, or done. One request at a time, so every point at
// which the process may die is a value, and a test can stand at each of them. After a crash the next pass starts from a fresh snapshot.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "controller/operator/status.h"

namespace pm::op {

/// What one pass knows beyond its snapshot. A new pass starts with State{}, or with the memo of the passes before it.
struct State {
  std::shared_ptr<Memo> memo;           ///< of this ParallelModel; null: begun anew
  std::optional<Snapshot> view;         ///< the snapshot with the answers of this pass worked in
  std::optional<k8s::Request> sent;     ///< awaits its answer
  bool asks_policy = false, asks_claim = false;   ///< it is the question for a user's ConfigMap, for the claim of the checkpoint
  Notes notes;
  std::vector<Event> events;            ///< for people; tell them when the pass ends
  Json written;                         ///< the status that was sent last
  int requests = 0;
};

struct Call {
  State state;
  k8s::Request request;
};

struct Done {
  std::optional<std::chrono::milliseconds> requeue_after;   ///< look again then even if nothing changes
  std::optional<std::string> error;                         ///< try again soon, from a fresh snapshot
  std::vector<Event> events;
};

/// One step. `response` is the answer to the request of the last Call, nothing at the start of a pass.
std::variant<Call, Done> step(State, const Snapshot&, const std::optional<k8s::Response>& response, const Settings&);

}  // namespace pm::op
