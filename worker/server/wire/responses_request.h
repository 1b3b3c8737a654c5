// SPDX-License-Identifier: Apache-2.0
// Translates the body of OpenAI's POST /v1/responses into that of a chat completion.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "worker/server/serving/unknown_fields.h"
#include "worker/server/wire/field_names.h"

namespace pm::server {

constexpr size_t max_items = 2048, max_metadata = 16;

struct ResponsesRequest {
  std::string chat;                     ///< body of POST /v1/chat/completions
  nlohmann::ordered_json conversation;  ///< its messages without the instructions, which the next request continues
  nlohmann::ordered_json items;         ///< of the input, those of earlier turns included; new ones may have no id
  nlohmann::ordered_json settings;      ///< fields of the request that the response repeats
  bool store = true;
  std::string model;  ///< that it names; empty: none
};

/// What an earlier response leaves to the next one.
struct EarlierTurns {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  ///< of the chat, its answer included
  nlohmann::ordered_json items = nlohmann::ordered_json::array();     ///< of its input, and of its output
};

/// Returns the turns up to an earlier response. Throws ApiError 400 where there is none.
using FindEarlierTurns = std::function<EarlierTurns(const std::string& id)>;

/// Translates the request. The items of one turn of the assistant, which are reasoning, messages and calls, become one
/// message. Throws ApiError 400 that names the field.
ResponsesRequest parse_responses(std::string_view body, const FindEarlierTurns&, UnknownFields&);

/// The client's names of fields of the chat completion.
std::span<const FieldName> responses_field_names();

}  // namespace pm::server
