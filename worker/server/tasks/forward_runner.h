// SPDX-License-Identifier: Apache-2.0
// Runs forward passes in the engine on behalf of the HTTP thread that waits for them.
#pragma once
#include <string_view>
#include <vector>

#include "worker/server/serving/server_context.h"

namespace pm::server {

/// The input of one forward pass and the outputs that it returns.
struct ForwardBatch {
  Arrays inputs;
  std::vector<std::string> outputs;
  bool hidden_states = false, attentions = false;
  std::shared_ptr<const engine::Adapter> adapter = {};  ///< nullptr: the base model
};

/// Runs one forward pass per batch and returns the outputs in order. Only a few are in flight at once, so that one
/// request does not fill the queue; their ids derive from the id of the request. Throws what the engine throws
/// (QueueFull only when no batch of this request is in flight), ApiError 503 when a forward pass failed or the server
/// stops, and ApiError 499 when the client has disconnected. Batches in flight are then cancelled.
std::vector<Arrays> run_forward_batches(const ServerContext&, const RoutedRequest&, std::vector<ForwardBatch> batches);
/// The same for passes that are a part of a request, which its route counts.
std::vector<Arrays> run_forward_passes(const ServerContext&, const RoutedRequest&, std::vector<ForwardBatch> batches);

/// Returns the values of a float output. Throws std::logic_error when the engine did not return it with this many
/// dimensions. The name is a view because GCC 14 takes the result of a function that is given a temporary string for a
/// part of that string.
const std::vector<float>& float_values(const Arrays& outputs, std::string_view name, size_t dimensions);

}  // namespace pm::server
