// SPDX-License-Identifier: Apache-2.0
// Translates the body of Anthropic's POST /v1/messages into that of a chat completion.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "worker/server/serving/unknown_fields.h"
#include "worker/server/wire/field_names.h"

namespace pm::server {

constexpr size_t max_turns = 2048, max_stop_sequences = 16;

struct MessagesRequest {
  std::string chat;  ///< body of POST /v1/chat/completions
  int64_t max_tokens = 0;
  std::string model;  ///< that it names; empty: none
};

/// Translates the request. Turns of one role that follow each other become one message, as Anthropic has it; each tool
/// result becomes a message of the role tool. An answer of the assistant at the end is continued. "thinking" becomes
/// the variables enable_thinking and thinking of the template. To count tokens, max_tokens is not needed. Throws
/// ApiError 400 that names the field.
MessagesRequest parse_messages(std::string_view body, bool counts_tokens, UnknownFields&);

/// The client's names of fields of the chat completion.
std::span<const FieldName> messages_field_names();

}  // namespace pm::server
