// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/response_store.h"

#include <utility>

namespace pm::server {

void ResponseStore::erase(Entries::iterator entry) {
  bytes_ -= entry->bytes();
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

bool ResponseStore::put(const std::string& id, StoredResponse response) {
  Entry entry{id, std::move(response)};
  const size_t bytes = entry.bytes();
  if (bytes > max_bytes_ || max_responses_ == 0) return false;
  const std::lock_guard lock(mutex_);
  if (const auto found = by_id_.find(id); found != by_id_.end()) erase(found->second);
  while (!entries_.empty() && (entries_.size() >= max_responses_ || bytes_ + bytes > max_bytes_))
    erase(std::prev(entries_.end()));
  entries_.push_front(std::move(entry));
  by_id_[id] = entries_.begin();
  bytes_ += bytes;
  return true;
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

bool ResponseStore::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  erase(found->second);
  return true;
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace pm::server
