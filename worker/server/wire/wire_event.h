// SPDX-License-Identifier: Apache-2.0
// A server-sent event that has a name.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace pm::server {

/// Returns JSON text in which bytes that are not valid UTF-8 are replaced.
inline std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Returns the event of the name that `data` has as "type".
inline std::string event_text(const nlohmann::ordered_json& data) {
  return "event: " + data.at("type").get<std::string>() + "\ndata: " + json_text(data) + "\n\n";
}

}  // namespace pm::server
