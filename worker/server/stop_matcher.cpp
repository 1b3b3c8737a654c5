// See stop_matcher.h.
#include "worker/server/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace pm::server {

std::string StopMatcher::push(std::string_view piece) {
  if (hit_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (const auto& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    hit_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  size_t keep = 0;
  for (const auto& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::flush() { return hit_ ? std::string() : std::exchange(held_, {}); }

}  // namespace pm::server
