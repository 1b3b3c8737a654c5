// SPDX-License-Identifier: Apache-2.0
// The items of a response's input as GET /v1/responses/{id}/input_items lists them.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "worker/server/serving/unknown_fields.h"

namespace pm::server {

constexpr int64_t max_listed_items = 100, default_listed_items = 20;

/// Appends the items of an input, which read_input_items() has accepted, in OpenAI's one form: contents are arrays of
/// parts, and each item has a type and a status. Only those that had an id have one.
void append_listed_items(nlohmann::ordered_json& items, const nlohmann::ordered_json& input);

/// Gives an id to each item that has none, or that of an earlier one. `response_id` makes it unique.
void assign_item_ids(nlohmann::ordered_json& items, const std::string& response_id);

/// Returns {"object": "list", "data", "first_id", "last_id", "has_more"} with the items that the query chooses by
/// "limit", "order" and "after". Throws ApiError 400 that names the parameter.
nlohmann::ordered_json item_page(const nlohmann::ordered_json& items, std::string_view query, UnknownFields&);

}  // namespace pm::server
