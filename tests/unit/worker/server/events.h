// Reading server-sent events.
#pragma once
#include <string>
#include <vector>

namespace pm::test {

/// The payloads of "data: ...\n\n"; fails for anything else between them.
std::vector<std::string> events_of(const std::string& body);

}  // namespace pm::test
