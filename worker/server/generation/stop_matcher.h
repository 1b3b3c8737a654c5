// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in text that arrives in pieces, and withholds text that may be the start of one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace pm::server {

class StopMatcher {
 public:
  /// None of `stops` is empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  /// Returns the text that may be sent now. It excludes everything from the first stop string on, and an end that may
  /// be the start of a stop string.
  std::string push(std::string_view piece);
  /// Returns the withheld text; to be called at the end of the text.
  std::string flush();
  /// True when a stop string was found; later text is dropped.
  bool hit() const { return hit_; }
  /// Returns the stop string that was found; "" while there is none.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_, found_;
  bool hit_ = false;
};

}  // namespace pm::server
