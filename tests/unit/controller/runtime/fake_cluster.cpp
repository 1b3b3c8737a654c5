// SPDX-License-Identifier: Apache-2.0
#include "fake_cluster.h"

#include "controller/core/selector.h"
#include "controller/core/status_error.h"

namespace pm::k8s::test {
namespace {

std::string parameter(const Request& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

ApiError error(int code, const char* reason) {
  return classify(code, Json{{"kind", "Status"}, {"reason", reason}, {"message", reason}}.dump());
}

bool selected(const Request& request, const Json& object) {
  return (request.ns.empty() || key_of(object).ns == request.ns) &&
         matches(parse_selector(parameter(request, "labelSelector")), object);
}

}  // namespace

Json FakeCluster::store(const Resource& resource, Json object) {
  auto& slot = objects_[resource.plural][key_of(object)];
  const bool there = !slot.is_null();
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  if (uid_of(object).empty())
    object["metadata"]["uid"] = there ? uid_of(slot) : std::string("uid-").append(std::to_string(version_));
  object["kind"] = resource.kind;
  object["apiVersion"] = api_version_of(resource);
  slot = object;
  history_.push_back(
      {resource.plural, {there ? WatchEvent::Type::Modified : WatchEvent::Type::Added, object}, version_});
  changed_.notify_all();
  return object;
}

Json FakeCluster::put(const Resource& resource, Json object) {
  std::lock_guard lock(mutex_);
  return store(resource, std::move(object));
}

void FakeCluster::remove(const Resource& resource, const Key& key) {
  std::lock_guard lock(mutex_);
  const auto found = objects_[resource.plural].find(key);
  if (found == objects_[resource.plural].end()) return;
  Json last = found->second;
  last["metadata"]["resourceVersion"] = std::to_string(++version_);
  objects_[resource.plural].erase(found);
  history_.push_back({resource.plural, {WatchEvent::Type::Deleted, last}, version_});
  changed_.notify_all();
}

Response FakeCluster::list(const Request& request) {
  std::vector<Json> all;
  for (const auto& [key, object] : objects_[request.resource.plural]) {
    if (selected(request, object)) all.push_back(object);
  }
  const std::string limit = parameter(request, "limit"), token = parameter(request, "continue");
  if (!token.empty() && std::stol(token.substr(token.find(':') + 1)) < compacted_) return error(410, "Expired");
  const size_t begin = token.empty() ? 0 : std::stoul(token),
               end = limit.empty() ? all.size() : std::min(all.size(), begin + std::stoul(limit));
  Json items = Json::array();
  for (size_t i = begin; i < end; ++i) items.push_back(all[i]);
  Json list = {{"items", items}, {"metadata", {{"resourceVersion", std::to_string(version_)}}}};
  if (end < all.size()) list["metadata"]["continue"] = std::to_string(end) + ":" + std::to_string(version_);
  return list;
}

Response FakeCluster::write(const Request& request) {
  auto& objects = objects_[request.resource.plural];
  const auto found = objects.find({request.ns, request.name});
  if (request.verb == Verb::Create) {
    const Key key{request.ns, key_of(request.body).name};
    if (objects.contains(key)) return error(409, "AlreadyExists");
    Json object = request.body;
    object["metadata"]["namespace"] = request.ns;
    return store(request.resource, object);
  }
  if (found == objects.end()) return error(404, "NotFound");
  if (request.verb == Verb::Delete) {
    Json last = found->second;
    last["metadata"]["resourceVersion"] = std::to_string(++version_);
    objects.erase(found);
    history_.push_back({request.resource.plural, {WatchEvent::Type::Deleted, last}, version_});
    changed_.notify_all();
    return Json{{"kind", "Status"}, {"status", "Success"}};
  }
  const std::string expected = version_of(request.body);
  if (!expected.empty() && expected != version_of(found->second)) return error(409, "Conflict");
  Json object = found->second;
  object.merge_patch(request.body);
  return object == found->second ? object : store(request.resource, object);
}

Response FakeCluster::send(const Request& request) {
  if (fault) {
    if (const auto injected = fault(request)) return *injected;
  }
  std::lock_guard lock(mutex_);
  sent_.push_back(request);
  if (request.verb == Verb::List) return list(request);
  if (request.verb != Verb::Get) return write(request);
  const auto& objects = objects_[request.resource.plural];
  const auto found = objects.find({request.ns, request.name});
  return found == objects.end() ? Response(error(404, "NotFound")) : Response(found->second);
}

bool FakeCluster::wanted(const Request& request, const Entry& entry) const {
  return entry.plural == request.resource.plural && selected(request, entry.event.object);
}

std::optional<ApiError> FakeCluster::watch(const Request& request, const std::function<bool(WatchEvent&&)>& sink,
                                           std::stop_token stop) {
  if (fault) {
    if (const auto injected = fault(request)) return injected;
  }
  std::unique_lock lock(mutex_);
  ++watches_;
  changed_.notify_all();
  long seen = std::stol(parameter(request, "resourceVersion"));
  if (seen < compacted_) return error(410, "Expired");
  const size_t generation = generation_;
  while (generation == generation_ && !stop.stop_requested()) {
    std::vector<WatchEvent> news;
    for (const Entry& entry : history_) {
      if (!frozen_ && entry.version > seen && wanted(request, entry)) news.push_back(entry.event);
    }
    if (!frozen_) seen = version_;
    lock.unlock();
    for (WatchEvent& event : news) {
      if (!sink(std::move(event))) return {};
    }
    lock.lock();
    const long now = version_;
    const bool frozen = frozen_;
    changed_.wait(lock, stop, [&] {
      return generation != generation_ || frozen_ != frozen || version_ != now || (!frozen_ && version_ != seen);
    });
  }
  return {};
}

void FakeCluster::freeze_watches(bool frozen) {
  std::lock_guard lock(mutex_);
  frozen_ = frozen;
  changed_.notify_all();
}

void FakeCluster::end_watches() {
  std::lock_guard lock(mutex_);
  ++generation_;
  changed_.notify_all();
}

void FakeCluster::compact() {
  std::lock_guard lock(mutex_);
  compacted_ = ++version_;
  history_.clear();
  ++generation_;
  changed_.notify_all();
}

std::vector<Request> FakeCluster::sent() const {
  std::lock_guard lock(mutex_);
  return sent_;
}

size_t FakeCluster::count(Verb verb, const Resource& resource) const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(sent_.begin(), sent_.end(),
                                           [&](const Request& r) { return r.verb == verb && r.resource == resource; }));
}

size_t FakeCluster::watches_started() const {
  std::lock_guard lock(mutex_);
  return watches_;
}

}  // namespace pm::k8s::test
