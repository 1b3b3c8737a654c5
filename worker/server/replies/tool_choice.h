// SPDX-License-Identifier: Apache-2.0
// Tools of a chat: reads tools, tool_choice and parallel_tool_calls, and holds the reply to what they demand.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/replies/constraint.h"
#include "worker/server/replies/custom_tools.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

constexpr size_t max_tools = 512;  ///< of a request

/// The tools of a request and its choice among them. Keys are in the order of the request.
struct ToolChoice {
  nlohmann::ordered_json tools = nlohmann::ordered_json::array();  ///< functions: what the chat template gets
  CustomTools custom;                                              ///< those of them whose calls are custom ones
  std::vector<std::string> demanded;  ///< names of tools of which the reply has to call some; empty: none
  bool calls = false;                 ///< calls are parsed
  bool parallel = true;               ///< several calls are allowed
};

/// Reads the fields; `ordered` is the request. Throws ApiError 400 that names the field.
ToolChoice read_tool_choice(Fields&, const nlohmann::ordered_json& ordered, UnknownFields&);

/// Returns the constraint of a reply to `prompt` that may have reasoning before its answer, and calls tools where the
/// request demands them. Where it does not, calls of strict tools still follow their schemas, and the input of custom
/// tools is any text. `spec`: the constraint of the answer. `is_reasoning`: the prompt ends in reasoning. Throws
/// ApiError 400 with the reason why it cannot be held.
std::optional<ConstraintSpec> reply_constraint(const ServerContext&, const ToolChoice&,
                                               const std::optional<ConstraintSpec>& spec, const std::string& prompt,
                                               bool is_reasoning);

}  // namespace pm::server
