// Forward passes through the engine, seen from the HTTP thread that waits for them.
#pragma once
#include <vector>

#include "worker/server/completions.h"

namespace pm::server {

/// One pass to be made.
struct PassInputs {
  Arrays inputs;
  std::vector<std::string> outputs;
  bool hidden_states = false, attentions = false;
};

/// Runs all, a few at a time so that one request does not fill the queue, and gives their outputs in order. Their ids derive from the call's.
/// Throws what the engine throws (QueueFull only when none of ours is under way), ApiError 503 when a pass failed or the server stops, and 499
/// when the client has gone, whose other passes are then cancelled.
std::vector<Arrays> run_passes(const Serving&, const Call&, std::vector<PassInputs> passes);

/// The floats of an output. Throws std::logic_error when the engine did not bring it with this many dimensions.
const std::vector<float>& floats_of(const Arrays& outputs, const std::string& name, size_t dimensions);

}  // namespace pm::server
