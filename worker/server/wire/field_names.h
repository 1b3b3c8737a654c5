// SPDX-License-Identifier: Apache-2.0
// Puts the client's names of fields into errors about the chat completion that its request became.
#pragma once
#include <span>

#include "worker/server/http/api_error.h"

namespace pm::server {

/// A field of chat completions, and what the client's wire form calls it.
struct FieldName {
  const char* chat;
  const char* own;
};

/// Returns the error with the client's names, in `param` and wherever the message has a whole word. The first matching
/// entry counts, so longer names stand first.
ApiError with_own_names(ApiError error, std::span<const FieldName> names);

}  // namespace pm::server
