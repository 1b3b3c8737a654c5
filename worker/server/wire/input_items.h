// SPDX-License-Identifier: Apache-2.0
// Reads the items of a conversation in the form of OpenAI's Responses API.
#pragma once
#include "worker/server/serving/unknown_fields.h"
#include "worker/server/wire/conversation.h"
#include "worker/server/wire/request_value.h"

namespace pm::server {

/// Appends a text, or items of the types message, reasoning, function_call and custom_tool_call, and their outputs.
/// Throws ApiError 400 that names the field.
void read_input_items(const RequestValue& input, Conversation&, UnknownFields&);

}  // namespace pm::server
