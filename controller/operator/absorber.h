// The answer to a request of a pass, worked into what the pass knows.
#pragma once
#include <optional>

#include "controller/operator/step.h"

namespace pm::op {

struct Absorbed {
  std::optional<Done> end;                  ///< how the pass ends, when it must; without its events
  std::optional<k8s::Request> follow_up;    ///< a question that the answer raised, to be asked at once
};

/// `state` has a view and a request that awaits this answer.
Absorbed absorb(State& state, const k8s::Response& response);

}  // namespace pm::op
