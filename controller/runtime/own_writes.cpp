// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/own_writes.h"

namespace pm::k8s {
namespace {

bool writes(Verb verb) { return verb != Verb::Get && verb != Verb::List; }

/// Versions that cannot be compared count as reached: that disables the guard but never blocks progress.
bool reached(const std::string& store, const std::string& wanted) {
  return compare_versions(store, wanted).value_or(0) >= 0;
}

}  // namespace

Response OwnWrites::send(const Request& request) {
  Response response = inner_.send(request);
  if (writes(request.verb) && !failed(response)) remember(request, object_of(response));
  return response;
}

void OwnWrites::remember(const Request& request, const Json& object) {
  const std::string version = version_of(object);
  if (version.empty()) return;  // the response is the Status of a completed deletion
  for (size_t i = 0; i < watched_.size(); ++i) {
    const Watched& watched = watched_[i];
    const bool seen = watched.resource == request.resource && (watched.ns.empty() || watched.ns == request.ns) &&
                      matches(watched.selector, object);
    if (!seen || reached(watched.store.version(), version)) continue;
    for (const Key& key : watched.keys(object)) {
      std::lock_guard lock(mutex_);
      std::string& wanted = pending_[key][i];
      if (wanted.empty() || !reached(wanted, version)) wanted = version;
    }
  }
}

bool OwnWrites::visible(const Key& key) {
  std::lock_guard lock(mutex_);
  const auto found = pending_.find(key);
  if (found == pending_.end()) return true;
  std::erase_if(found->second,
                [&](const auto& entry) { return reached(watched_[entry.first].store.version(), entry.second); });
  if (!found->second.empty()) return false;
  pending_.erase(found);
  return true;
}

}  // namespace pm::k8s
