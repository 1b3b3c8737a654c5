// Finds stop strings in text that arrives in pieces, and holds back what may become one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace pm::server {

class StopMatcher {
 public:
  /// `stops` are not empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  /// Text that may be shown now: nothing from the first stop string on, nor the end that may be the start of one.
  std::string push(std::string_view piece);
  /// What was held back, at the end of the text.
  std::string flush();
  /// A stop string was found; everything after is dropped.
  bool hit() const { return hit_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool hit_ = false;
};

}  // namespace pm::server
