#include "controller/runtime/store.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <stdexcept>

#include "controller/core/log.h"

namespace pm::k8s {
namespace {

/// Index value -> keys.
using Index = std::map<std::string, std::set<Key>>;

std::string owner_uid(const Json& object) {
  const auto owner = controller_of(object);
  return owner ? owner->uid : "";
}

void put(Index& index, const std::string& value, const Key& key) {
  if (!value.empty()) index[value].insert(key);
}

void drop(Index& index, const std::string& value, const Key& key) {
  const auto found = index.find(value);
  if (found == index.end()) return;
  found->second.erase(key);
  if (found->second.empty()) index.erase(found);
}

bool older(const std::string& a, const std::string& b) {
  const auto order = compare_versions(a, b);
  return order && *order < 0;
}

}  // namespace

namespace detail {

struct StoreState {
  mutable std::shared_mutex mutex;
  std::map<Key, ObjectPtr> objects;
  Index by_owner;
  std::map<std::string, Index> by_label;    ///< label name -> index; the names are fixed at construction
  std::string version;
  bool synced = false;

  void index(const Key& key, const Json& object) {
    put(by_owner, owner_uid(object), key);
    for (auto& [name, values] : by_label) put(values, label_of(object, name), key);
  }
  void unindex(const Key& key, const Json& object) {
    drop(by_owner, owner_uid(object), key);
    for (auto& [name, values] : by_label) drop(values, label_of(object, name), key);
  }
  void advance(const std::string& to) {
    if (!to.empty() && !older(to, version)) version = to;
  }
  std::vector<ObjectPtr> at(const Index& index, const std::string& value) const {
    std::vector<ObjectPtr> found;
    const auto keys = index.find(value);
    if (keys == index.end()) return found;
    for (const Key& key : keys->second) found.push_back(objects.at(key));
    return found;
  }
};

}  // namespace detail

void prune_common(Json& object) {
  if (!object.is_object() || !object.contains("metadata") || !object["metadata"].is_object()) return;
  Json& metadata = object["metadata"];
  metadata.erase("managedFields");
  const auto annotations = metadata.find("annotations");
  if (annotations != metadata.end() && annotations->is_object()) annotations->erase("kubectl.kubernetes.io/last-applied-configuration");
}

ObjectPtr Store::get(const Key& key) const {
  std::shared_lock lock(state_->mutex);
  const auto found = state_->objects.find(key);
  return found == state_->objects.end() ? nullptr : found->second;
}

std::vector<ObjectPtr> Store::list() const {
  std::shared_lock lock(state_->mutex);
  std::vector<ObjectPtr> all;
  all.reserve(state_->objects.size());
  for (const auto& [key, object] : state_->objects) all.push_back(object);
  return all;
}

std::vector<ObjectPtr> Store::owned_by(const std::string& uid) const {
  std::shared_lock lock(state_->mutex);
  return state_->at(state_->by_owner, uid);
}

std::vector<ObjectPtr> Store::with_label(const std::string& name, const std::string& value) const {
  std::shared_lock lock(state_->mutex);
  const auto index = state_->by_label.find(name);
  if (index == state_->by_label.end()) throw std::logic_error("the store has no index for label " + name + ": name it in StoreOptions::label_indexes");
  return state_->at(index->second, value);
}

size_t Store::size() const {
  std::shared_lock lock(state_->mutex);
  return state_->objects.size();
}

bool Store::synced() const {
  std::shared_lock lock(state_->mutex);
  return state_->synced;
}

std::string Store::version() const {
  std::shared_lock lock(state_->mutex);
  return state_->version;
}

StoreWriter::StoreWriter(StoreOptions options) : state_(std::make_shared<detail::StoreState>()), options_(std::move(options)) {
  for (const auto& name : options_.label_indexes) state_->by_label[name];
}

/// A prune that stumbles over an odd object costs memory, not the process.
void StoreWriter::prune(Json& object) const {
  if (!options_.prune) return;
  Json whole = object;
  try {
    options_.prune(object);
  } catch (const std::exception& error) {
    LOG(ERROR) << to_string(key_of(whole)) << " cannot be pruned and is stored whole: " << error.what();
    object = std::move(whole);
  }
}

void StoreWriter::begin_list() { list_.clear(); }

void StoreWriter::list_item(Json object) {
  prune(object);
  list_pruned(std::make_shared<const Json>(std::move(object)));
}

void StoreWriter::list_pruned(ObjectPtr object) {
  Key key = key_of(*object);
  list_[std::move(key)] = std::move(object);
}

std::vector<Change> StoreWriter::finish_list(const std::string& version) {
  std::vector<Change> changes;
  detail::StoreState next;   // indexed before the lock, so that readers wait only for the swap
  for (const auto& [name, values] : state_->by_label) next.by_label[name];
  next.objects = std::move(list_);
  list_.clear();
  for (const auto& [key, object] : next.objects) next.index(key, *object);
  for (const auto& [key, object] : next.objects) {   // only this thread writes: it may read without the lock
    const auto present = state_->objects.find(key);
    if (present == state_->objects.end()) {
      changes.push_back({nullptr, object});
    } else if (version_of(*present->second) != version_of(*object) || uid_of(*present->second) != uid_of(*object)) {
      changes.push_back({present->second, object});
    }
  }
  for (const auto& [key, object] : state_->objects) {
    if (!next.objects.contains(key)) changes.push_back({object, nullptr});
  }
  std::unique_lock lock(state_->mutex);
  state_->objects.swap(next.objects);
  state_->by_owner.swap(next.by_owner);
  state_->by_label.swap(next.by_label);
  state_->version = version;
  state_->synced = true;
  return changes;
}

Change StoreWriter::apply(Json object) {
  prune(object);
  return apply_pruned(std::make_shared<const Json>(std::move(object)));
}

Change StoreWriter::apply_pruned(ObjectPtr after) {
  const Key key = key_of(*after);
  std::unique_lock lock(state_->mutex);
  ObjectPtr& slot = state_->objects[key];
  const ObjectPtr before = slot;
  if (before && older(version_of(*after), version_of(*before))) return {};
  if (before) state_->unindex(key, *before);
  slot = after;
  state_->index(key, *after);
  state_->advance(version_of(*after));
  return {before, after};
}

Change StoreWriter::remove(const Json& object) {
  const Key key = key_of(object);
  std::unique_lock lock(state_->mutex);
  const auto found = state_->objects.find(key);
  if (found != state_->objects.end() && older(version_of(object), version_of(*found->second))) return {};
  state_->advance(version_of(object));
  if (found == state_->objects.end()) return {};
  const ObjectPtr before = found->second;
  state_->unindex(key, *before);
  state_->objects.erase(found);
  return {before, nullptr};
}

void StoreWriter::advance(const std::string& version) {
  std::unique_lock lock(state_->mutex);
  state_->advance(version);
}

}  // namespace pm::k8s
