// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/open_connections.h"

namespace pm::server {

Connection::Head OpenConnections::await_head(Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&connection);
    if (stopping_)
      connection.end_wait();
    else
      end_longest_waits();
  }
  const auto head = connection.await_head();
  const std::lock_guard lock(mutex_);
  waiting_.remove(&connection);
  return head;
}

void OpenConnections::make_room() {
  const std::lock_guard lock(mutex_);
  end_longest_waits();
}

void OpenConnections::started() {
  const std::lock_guard lock(mutex_);
  if (ending_ > 0) --ending_;
  if (!stopping_) end_longest_waits();
}

void OpenConnections::end_longest_waits() {
  for (size_t queued = queued_(); ending_ < queued && !waiting_.empty(); ++ending_) {
    waiting_.front()->end_wait();
    waiting_.pop_front();
  }
}

void OpenConnections::end_waits() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (Connection* connection : waiting_) connection->end_wait();
  waiting_.clear();
}

}  // namespace pm::server
