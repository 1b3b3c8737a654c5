// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/open_connections.h"

namespace pm::server {

Connection::Head OpenConnections::await_head(Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&connection);
    if (stopping_)
      connection.end_wait();
    else if (is_crowded_())
      end_first();
  }
  const auto head = connection.await_head();
  const std::lock_guard lock(mutex_);
  waiting_.remove(&connection);
  return head;
}

void OpenConnections::end_longest_wait() {
  const std::lock_guard lock(mutex_);
  end_first();
}

void OpenConnections::end_first() {
  if (waiting_.empty()) return;
  waiting_.front()->end_wait();
  waiting_.pop_front();
}

void OpenConnections::end_waits() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (Connection* connection : waiting_) connection->end_wait();
  waiting_.clear();
}

}  // namespace pm::server
