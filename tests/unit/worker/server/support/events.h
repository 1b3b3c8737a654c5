// SPDX-License-Identifier: Apache-2.0
// Parses server-sent events.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pm::test {

/// Returns the payloads of "data: ...\n\n". The test fails when anything else stands between them.
std::vector<std::string> events_of(const std::string& body);

/// Returns the data of "event: NAME\ndata: ...\n\n". The test fails when anything else stands between them, or a
/// name is not the data's "type".
std::vector<nlohmann::json> named_events_of(const std::string& body);

}  // namespace pm::test
