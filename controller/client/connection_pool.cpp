// SPDX-License-Identifier: Apache-2.0
#include "controller/client/connection_pool.h"

#include <utility>

namespace pm::k8s {
namespace {
constexpr std::chrono::seconds max_idle{60};
}

std::unique_ptr<Connection> ConnectionPool::take() {
  std::vector<Idle> old;  // closed outside the lock
  {
    std::lock_guard lock(mutex_);
    const auto now = clock_.now();
    while (!idle_.empty() && now - idle_.front().since > max_idle) {
      old.push_back(std::move(idle_.front()));
      idle_.erase(idle_.begin());
    }
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back().connection);
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>(config_, deadlines_);
}

void ConnectionPool::give(std::unique_ptr<Connection> connection) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < keep_) idle_.push_back({std::move(connection), clock_.now()});
}

}  // namespace pm::k8s
