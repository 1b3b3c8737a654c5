// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/reflector.h"

#include <condition_variable>
#include <mutex>

#include "controller/core/status_error.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;

void sleep(milliseconds duration, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, stop, duration, [] { return false; });
}

}  // namespace

Reflector::Reflector(Collection collection, StoreOptions options, Context context,
                     std::function<void(const Change&)> changed, std::function<void()> synced)
    : collection_(std::move(collection)),
      context_(std::move(context)),
      writer_(std::move(options)),
      watcher_(context_.clock, context_.uniform),
      changed_(std::move(changed)),
      synced_(std::move(synced)) {}

void Reflector::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const Step step = watcher_.next();
    if (const auto* page = std::get_if<ListPage>(&step)) {
      list(*page);
    } else if (const auto* start = std::get_if<StartWatch>(&step)) {
      watch(*start, stop);
    } else {
      sleep(std::get<Wait>(step).duration, stop);
    }
  }
}

Request Reflector::request() const {
  Request request{.verb = Verb::List, .resource = collection_.resource, .ns = collection_.ns};
  if (!collection_.label_selector.empty()) request.query.emplace("labelSelector", collection_.label_selector);
  return request;
}

void Reflector::list(const ListPage& page) {
  Request wanted = request();
  if (page.limit > 0) wanted.query.emplace("limit", std::to_string(page.limit));
  if (!page.token.empty()) wanted.query.emplace("continue", page.token);
  context_.metrics.lists.Increment();
  Response response = context_.api.send(wanted);
  if (failed(response)) {
    context_.metrics.errors.Increment();
    LOG(WARNING) << "list of " << collection_.resource.plural << ": " << to_string(error_of(response));
  }
  apply(watcher_.listed(std::move(response)));
}

void Reflector::watch(const StartWatch& start, std::stop_token stop) {
  Request wanted = request();
  wanted.query.emplace("watch", "1");
  wanted.query.emplace("allowWatchBookmarks", "true");
  wanted.query.emplace("resourceVersion", start.version);
  wanted.query.emplace("timeoutSeconds", std::to_string(start.timeout_seconds));
  context_.metrics.watches.Increment();
  const auto begin = context_.clock.now();
  const auto error = context_.watches.watch(
      wanted,
      [this](WatchEvent&& event) {
        context_.metrics.events.Increment();
        apply(watcher_.event(std::move(event)));
        return true;
      },
      stop);
  if (stop.stop_requested()) return;
  if (error) {
    context_.metrics.errors.Increment();
    LOG(WARNING) << "watch of " << collection_.resource.plural << ": " << to_string(*error);
  }
  watcher_.ended(error, std::chrono::duration_cast<milliseconds>(context_.clock.now() - begin));
}

/// Adds apiVersion and kind, which items of lists lack.
Json Reflector::complete(Json&& object) const {
  if (object.is_object() && !object.contains("kind")) {
    object["kind"] = collection_.resource.kind;
    object["apiVersion"] = api_version_of(collection_.resource);
  }
  return std::move(object);
}

void Reflector::apply(std::vector<Effect>&& effects) {
  for (Effect& effect : effects) {
    switch (effect.kind) {
      case Effect::Kind::BeginList:
        writer_.begin_list();
        break;
      case Effect::Kind::Item:
        writer_.list_item(complete(std::move(effect.object)));
        break;
      case Effect::Kind::Apply:
        tell(writer_.apply(std::move(effect.object)));
        break;
      case Effect::Kind::Remove:
        tell(writer_.remove(effect.object));
        break;
      case Effect::Kind::Advance:
        writer_.advance(effect.version);
        break;
      case Effect::Kind::FinishList: {
        const bool first = !store().synced();
        writer_.finish_list(effect.version, [this](const Change& change) { tell(change); });
        if (first) synced_();
        break;
      }
    }
  }
  context_.metrics.objects.Set(static_cast<double>(store().size()));
}

void Reflector::tell(const Change& change) {
  if (!change.before && !change.after) return;
  try {
    changed_(change);
  } catch (const std::exception& error) {
    LOG(ERROR) << "an object of " << collection_.resource.plural << " cannot be mapped: " << error.what();
  }
}

}  // namespace pm::k8s
