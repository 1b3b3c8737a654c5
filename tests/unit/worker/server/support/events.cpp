// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/server/support/events.h"

#include <gtest/gtest.h>

namespace pm::test {

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_EQ(body.compare(at, 6, "data: "), 0) << body.substr(at, 50);
    if (end == body.npos) break;
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

std::vector<nlohmann::json> named_events_of(const std::string& body) {
  std::vector<nlohmann::json> events;
  for (size_t at = 0; at < body.size();) {
    const size_t data = body.find("\ndata: ", at), end = body.find("\n\n", at);
    if (body.compare(at, 7, "event: ") != 0 || data == body.npos || end == body.npos) {
      ADD_FAILURE() << body.substr(at, 100);
      break;
    }
    events.push_back(nlohmann::json::parse(body.substr(data + 7, end - data - 7)));
    EXPECT_EQ(events.back()["type"], body.substr(at + 7, data - at - 7));
    at = end + 2;
  }
  return events;
}

}  // namespace pm::test
