// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/watcher.h"

#include <algorithm>
#include <utility>

#include "controller/core/object.h"
#include "controller/core/status_error.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;
using Kind = Effect::Kind;

constexpr int min_watch = 300, max_watch = 600;  // seconds; spread, so that watches do not all end at once
constexpr milliseconds very_short_watch{1000};
constexpr int long_page_time =
    1000;  // objects: ten thousand pods are ten requests within the five minutes that a token lives

bool is_list(const Json& list) {
  return list.is_object() && list.contains("items") && list["items"].is_array() && !version_of(list).empty();
}

/// A version that the server has not reached, for example after its store was restored from a backup: waiting would
/// never end.
bool from_the_future(const ApiError& error) { return error.code == 504; }

/// Returns whether the stored version may still be valid after this error: an unavailable or overloaded server, a
/// restart, or credentials that will be renewed.
bool keeps_version(const ApiError& error) {
  if (from_the_future(error)) return false;
  return transient(error) || error.failure == Failure::Unauthorized || error.failure == Failure::Forbidden;
}

}  // namespace

Step Watcher::next() {
  if (wait_) return *std::exchange(wait_, {});
  if (state_ == State::Listing) return ListPage{token_, limit_};
  saw_event_ = false;
  return StartWatch{version_, min_watch + static_cast<int>(uniform_() * (max_watch - min_watch))};
}

void Watcher::pause(double least_seconds) {
  const milliseconds least(static_cast<int64_t>(least_seconds * 1000));
  wait_ = Wait{std::max(least, backoff_.next(clock_.now()))};
}

std::vector<Effect> Watcher::listed(Response response) {
  if (!failed(response)) {
    Json& list = std::get<Json>(response);
    if (is_list(list)) return page(std::move(list));
    relist();
    pause();
    return {};
  }
  const ApiError& error = error_of(response);
  if (error.failure == Failure::Gone && !token_.empty()) {
    const int longer = limit_ < long_page_time ? long_page_time : 0;
    relist();
    limit_ = longer;
    return {};
  }
  if (!transient(error) || limit_ == 0) relist();
  pause(error.retry_after);
  return {};
}

std::vector<Effect> Watcher::page(Json&& list) {
  std::vector<Effect> effects;
  if (token_.empty()) effects.push_back({Kind::BeginList, {}, {}});
  for (Json& item : list["items"]) effects.push_back({Kind::Item, std::move(item), {}});
  token_ = string_at(list, "/metadata/continue");
  if (!token_.empty()) return effects;
  version_ = version_of(list);
  state_ = State::Watching;
  limit_ = ListPage{}.limit;
  effects.push_back({Kind::FinishList, {}, version_});
  return effects;
}

std::vector<Effect> Watcher::event(WatchEvent&& event) {
  const std::string version = version_of(event.object);
  const bool bookmark = event.type == WatchEvent::Type::Bookmark;
  if (version.empty() || (!bookmark && key_of(event.object).name.empty())) return {};
  saw_event_ = true;
  version_ = version;
  if (bookmark) return {{Kind::Advance, {}, version}};
  const bool removed = event.type == WatchEvent::Type::Deleted;
  return {{removed ? Kind::Remove : Kind::Apply, std::move(event.object), {}}};
}

void Watcher::ended(const std::optional<ApiError>& error, milliseconds lasted) {
  const bool healthy = saw_event_ || lasted >= very_short_watch;
  if (error && !keeps_version(*error)) relist();
  if (!healthy || (error && error->code != 0 && error->failure != Failure::Gone)) pause(error ? error->retry_after : 0);
}

}  // namespace pm::k8s
