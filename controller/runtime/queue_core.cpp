// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/queue_core.h"

namespace pm::k8s {

bool QueueCore::add(const Key& key, Time now) {
  if (!wanted_.emplace(key, now).second) return false;
  if (!running_.contains(key)) order_.push_back(key);
  return true;
}

void QueueCore::add_at(const Key& key, Time due) {
  const auto present = delayed_.find(key);
  if (present != delayed_.end()) {
    if (present->second <= due) return;
    due_.erase({present->second, key});
  }
  delayed_[key] = due;
  due_.insert({due, key});
}

int QueueCore::advance(Time now) {
  int added = 0;
  while (!due_.empty() && due_.begin()->first <= now) {
    const Key key = due_.begin()->second;
    due_.erase(due_.begin());
    delayed_.erase(key);
    added += add(key, now);
  }
  return added;
}

std::optional<QueueCore::Time> QueueCore::next_due() const {
  return due_.empty() ? std::nullopt : std::optional(due_.begin()->first);
}

std::optional<QueueCore::Taken> QueueCore::take(Time now) {
  if (order_.empty()) return {};
  Taken taken{order_.front(), {}};
  order_.pop_front();
  const auto wanted = wanted_.find(taken.key);
  taken.since = wanted->second;
  wanted_.erase(wanted);
  running_[taken.key] = now;
  const auto delayed = delayed_.find(taken.key);
  if (delayed != delayed_.end()) {
    due_.erase({delayed->second, taken.key});
    delayed_.erase(delayed);
  }
  return taken;
}

void QueueCore::done(const Key& key, Time now) {
  if (!running_.erase(key)) return;
  const auto wanted = wanted_.find(key);
  if (wanted == wanted_.end()) return;
  wanted->second = now;
  order_.push_back(key);
}

}  // namespace pm::k8s
