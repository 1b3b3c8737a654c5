// SPDX-License-Identifier: Apache-2.0
// Resolves a policy and a checkpoint into a Model.
#pragma once
#include <filesystem>
#include <string>

#include "worker/checkpoint/checkpoint.h"
#include "worker/policy/spec/model.h"

namespace pm::policy {

/// Resolves a checkpoint by a policy: the file `policy_file`, or, when that is empty, the built-in policy of
/// config.json's model_type. Every tensor of the checkpoint has to be read, known to another head, or ignored, and
/// every required parameter needs a tensor. Throws Error{Model} with the reasons UnknownArchitecture (no policy for
/// this model_type, or no such class), UnsupportedPolicy (the policy file is wrong; the message has file and line)
/// and ModelUnreadable (the message lists the names).
Model resolve(const checkpoint::Checkpoint&, const std::filesystem::path& policy_file = {});

/// Resolves the module of the checkpoint that predicts the token behind the next one (multi-token prediction): a model
/// of one layer, whose input joins the states of the checkpoint's model to the embeddings of tokens, with the embedding
/// and the head of that one. Its tensors have to be read or ignored likewise. Throws as resolve() does, and
/// Error{ModelUnreadable} where there is no module.
Model resolve_mtp(const checkpoint::Checkpoint&, const std::filesystem::path& policy_file = {});

/// Returns `replies` of the checkpoint's policy: the form in which its chat models write reasoning and tool calls, ""
/// where the policy has none. Errors as of resolve().
std::string reply_form_name(const checkpoint::Checkpoint&, const std::filesystem::path& policy_file = {});

}  // namespace pm::policy
