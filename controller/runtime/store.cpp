// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/store.h"

#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

#include "controller/core/packed.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

struct ByKey {
  bool operator()(const Key* a, const Key* b) const { return *a < *b; }
};
/// Maps a value to the keys of the objects that have it. The keys belong to the map of objects.
using Index = std::map<std::string, std::set<const Key*, ByKey>>;

std::string owner_uid(const Json& object) {
  const auto owner = controller_of(object);
  return owner ? owner->uid : "";
}

void add(Index& index, const std::string& value, const Key& key) {
  if (!value.empty()) index[value].insert(&key);
}

void drop(Index& index, const std::string& value, const Key& key) {
  const auto found = index.find(value);
  if (found == index.end()) return;
  found->second.erase(&key);
  if (found->second.empty()) index.erase(found);
}

bool older(const std::string& a, const std::string& b) {
  const auto order = compare_versions(a, b);
  return order && *order < 0;
}

}  // namespace

namespace detail {

/// A stored object, either as Json or packed.
class StoredObject {
 public:
  StoredObject() = default;
  explicit StoredObject(ObjectPtr whole) : whole_(std::move(whole)) {}
  explicit StoredObject(Packed packed) : packed_(std::move(packed)) {}
  ObjectPtr object() const { return whole_ ? whole_ : std::make_shared<const Json>(packed_.unpack()); }
  bool surely_same(const StoredObject& other) const {
    return whole_ == other.whole_ && packed_.same_bytes(other.packed_);
  }

 private:
  ObjectPtr whole_;
  Packed packed_;
};

struct StoreState {
  mutable std::shared_mutex mutex;
  std::map<Key, StoredObject> objects;
  Index by_owner;
  std::map<std::string, std::pair<IndexValue, Index>> indexes;  ///< by name; the names are fixed at construction
  std::string version;
  bool synced = false;

  /// `before`: the object that it replaces, or null.
  void put(const Key& key, StoredObject held, const Json& after, const ObjectPtr& before) {
    const auto place = objects.try_emplace(key).first;
    if (before) unindex(place->first, *before);
    place->second = std::move(held);
    add(by_owner, owner_uid(after), place->first);
    for (auto& [name, index] : indexes) add(index.second, index.first(after), place->first);
  }
  void unindex(const Key& key, const Json& object) {
    drop(by_owner, owner_uid(object), key);
    for (auto& [name, index] : indexes) drop(index.second, index.first(object), key);
  }
  ObjectPtr find(const Key& key) const {
    const auto found = objects.find(key);
    return found == objects.end() ? nullptr : found->second.object();
  }
  void advance(const std::string& to) {
    if (!to.empty() && !older(to, version)) version = to;
  }
  const Index& index(const std::string& name) const {
    const auto found = indexes.find(name);
    if (found == indexes.end())
      throw std::logic_error("the store has no index " + name + ": name it in StoreOptions::indexes");
    return found->second.second;
  }
  std::vector<StoredObject> at(const Index& index, const std::string& value) const {
    std::vector<StoredObject> found;
    const auto keys = index.find(value);
    if (keys == index.end()) return found;
    for (const Key* key : keys->second) found.push_back(objects.at(*key));
    return found;
  }
};

}  // namespace detail

namespace {

/// Unpacks outside the lock, so that readers do not block others.
std::vector<ObjectPtr> objects_of(const std::vector<detail::StoredObject>& held) {
  std::vector<ObjectPtr> out;
  out.reserve(held.size());
  for (const detail::StoredObject& one : held) out.push_back(one.object());
  return out;
}

}  // namespace

IndexValue by_label(std::string name) {
  return [name = std::move(name)](const Json& object) { return label_of(object, name); };
}

void prune_common(Json& object) {
  if (!object.is_object() || !object.contains("metadata") || !object["metadata"].is_object()) return;
  Json& metadata = object["metadata"];
  metadata.erase("managedFields");
  const auto annotations = metadata.find("annotations");
  if (annotations != metadata.end() && annotations->is_object())
    annotations->erase("kubectl.kubernetes.io/last-applied-configuration");
}

ObjectPtr Store::get(const Key& key) const {
  detail::StoredObject held;
  {
    std::shared_lock lock(state_->mutex);
    const auto found = state_->objects.find(key);
    if (found == state_->objects.end()) return nullptr;
    held = found->second;
  }
  return held.object();
}

std::vector<ObjectPtr> Store::list() const {
  std::vector<detail::StoredObject> all;
  {
    std::shared_lock lock(state_->mutex);
    all.reserve(state_->objects.size());
    for (const auto& [key, held] : state_->objects) all.push_back(held);
  }
  return objects_of(all);
}

std::vector<ObjectPtr> Store::owned_by(const std::string& uid) const {
  std::shared_lock lock(state_->mutex);
  const std::vector<detail::StoredObject> found = state_->at(state_->by_owner, uid);
  lock.unlock();
  return objects_of(found);
}

std::vector<ObjectPtr> Store::with(const std::string& index, const std::string& value) const {
  std::shared_lock lock(state_->mutex);
  const std::vector<detail::StoredObject> found = state_->at(state_->index(index), value);
  lock.unlock();
  return objects_of(found);
}

std::vector<Key> Store::keys_with(const std::string& index, const std::string& value) const {
  std::shared_lock lock(state_->mutex);
  std::vector<Key> out;
  const Index& values = state_->index(index);
  const auto keys = values.find(value);
  if (keys == values.end()) return out;
  for (const Key* key : keys->second) out.push_back(*key);
  return out;
}

std::vector<Key> Store::keys() const {
  std::shared_lock lock(state_->mutex);
  std::vector<Key> all;
  all.reserve(state_->objects.size());
  for (const auto& [key, held] : state_->objects) all.push_back(key);
  return all;
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

StoreWriter::StoreWriter(StoreOptions options) : options_(std::move(options)), state_(fresh()) {}

std::shared_ptr<detail::StoreState> StoreWriter::fresh() const {
  auto state = std::make_shared<detail::StoreState>();
  for (const auto& [name, value] : options_.indexes) state->indexes[name].first = value;
  return state;
}

/// Contains exceptions of a prune function: the object is then stored unpruned.
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

void StoreWriter::begin_list() { next_ = fresh(); }

detail::StoreState& StoreWriter::collected() {
  if (!next_) begin_list();
  return *next_;
}

void StoreWriter::list_item(Json object) {
  prune(object);
  if (!options_.packed) return list_pruned(std::make_shared<const Json>(std::move(object)));
  const Key key = key_of(object);
  collected().put(key, detail::StoredObject(Packed(object)), object, collected().find(key));
}

void StoreWriter::list_pruned(ObjectPtr object) {
  const Key key = key_of(*object);
  collected().put(key, detail::StoredObject(object), *object, collected().find(key));
}

void StoreWriter::finish_list(const std::string& version, const std::function<void(const Change&)>& changed) {
  collected();
  const auto old = std::exchange(next_, nullptr);  // indexed before the lock, so that readers wait only for the swap
  {
    std::unique_lock lock(state_->mutex);
    state_->objects.swap(old->objects);
    state_->by_owner.swap(old->by_owner);
    state_->indexes.swap(old->indexes);
    state_->version = version;
    state_->synced = true;
  }
  for (const auto& [key, held] : state_->objects) {  // only this thread writes: it may read without the lock
    const auto former = old->objects.find(key);
    if (former != old->objects.end() && former->second.surely_same(held)) continue;
    const ObjectPtr before = former == old->objects.end() ? nullptr : former->second.object(), after = held.object();
    if (!before || version_of(*before) != version_of(*after) || uid_of(*before) != uid_of(*after))
      changed({before, after});
  }
  for (const auto& [key, held] : old->objects) {
    if (!state_->objects.contains(key)) changed({held.object(), nullptr});
  }
}

Change StoreWriter::apply(Json object) {
  prune(object);
  auto after = std::make_shared<const Json>(std::move(object));
  return put(options_.packed ? detail::StoredObject(Packed(*after)) : detail::StoredObject(after), after);
}

Change StoreWriter::apply_pruned(ObjectPtr object) { return put(detail::StoredObject(object), object); }

Change StoreWriter::put(detail::StoredObject held, ObjectPtr after) {
  const Key key = key_of(*after);
  const ObjectPtr before = state_->find(key);  // only this thread writes
  if (before && older(version_of(*after), version_of(*before))) return {};
  std::unique_lock lock(state_->mutex);
  state_->put(key, std::move(held), *after, before);
  state_->advance(version_of(*after));
  return {before, std::move(after)};
}

Change StoreWriter::remove(const Json& object) {
  const Key key = key_of(object);
  const ObjectPtr before = state_->find(key);
  if (before && older(version_of(object), version_of(*before))) return {};
  std::unique_lock lock(state_->mutex);
  state_->advance(version_of(object));
  if (!before) return {};
  const auto place = state_->objects.find(key);
  state_->unindex(place->first, *before);
  state_->objects.erase(place);
  return {before, nullptr};
}

void StoreWriter::advance(const std::string& version) {
  std::unique_lock lock(state_->mutex);
  state_->advance(version);
}

}  // namespace pm::k8s
