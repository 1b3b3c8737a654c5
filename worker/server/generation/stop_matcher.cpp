// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace pm::server {

std::string StopMatcher::push(std::string_view piece) {
  if (hit_) return {};
  pending_ += piece;
  size_t first = std::string::npos;
  for (const auto& stop : stops_) {
    const size_t at = pending_.find(stop);
    if (at < first) first = at, found_ = stop;
  }
  if (first != std::string::npos) {
    hit_ = true;
    pending_.resize(first);
    return std::exchange(pending_, {});
  }
  size_t keep = 0;
  for (const auto& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > keep; --n)
      if (pending_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string shown = pending_.substr(0, pending_.size() - keep);
  pending_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::flush() { return hit_ ? std::string() : std::exchange(pending_, {}); }

}  // namespace pm::server
