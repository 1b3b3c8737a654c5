// SPDX-License-Identifier: Apache-2.0
// Parses server-sent events.
#pragma once
#include <string>
#include <vector>

namespace pm::test {

/// Returns the payloads of "data: ...\n\n". The test fails when anything else stands between them.
std::vector<std::string> events_of(const std::string& body);

}  // namespace pm::test
