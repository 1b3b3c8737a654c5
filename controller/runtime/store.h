// SPDX-License-Identifier: Apache-2.0
// A local copy of a collection. Many readers hold a Store; the one watcher of the collection holds the StoreWriter.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/core/object.h"

namespace pm::k8s {

/// Removes unused fields before an object is stored, to save memory.
using Prune = std::function<void(Json&)>;
/// Drops metadata.managedFields and the last-applied-configuration annotation.
void prune_common(Json& object);

/// The value by which an index finds an object; "": the index does not know the object.
using IndexValue = std::function<std::string(const Json&)>;
IndexValue by_label(std::string name);

/// The indexes and the storage of a store.
struct StoreOptions {
  std::map<std::string, IndexValue> indexes;  ///< by name, for with(); the owner index is always there
  Prune prune = prune_common;
  /// Stores objects packed and unpacks them for each reader: a tenth of the memory for some microseconds per read. It
  /// suits collections with many objects of which a reader needs few, found by an index.
  bool packed = false;
};

namespace detail {
struct StoreState;
class StoredObject;
}  // namespace detail

/// Read-only handle, cheap to copy, thread-safe. Objects are immutable snapshots; they stay valid after the store moved
/// on.
class Store {
 public:
  /// The object, or null.
  ObjectPtr get(const Key&) const;
  /// All objects, ordered by key. Empty until synced.
  std::vector<ObjectPtr> list() const;
  /// Objects whose controlling owner has this uid, ordered by key.
  std::vector<ObjectPtr> owned_by(const std::string& uid) const;
  /// Objects that have this value in an index named in StoreOptions::indexes, ordered by key. Throws std::logic_error
  /// for another index.
  std::vector<ObjectPtr> with(const std::string& index, const std::string& value) const;
  /// The keys of the same objects, and of all objects, without unpacking them.
  std::vector<Key> keys_with(const std::string& index, const std::string& value) const;
  std::vector<Key> keys() const;
  size_t size() const;
  /// Returns true once the first complete list is stored, and from then on.
  bool synced() const;
  /// The newest resourceVersion that the store is known to reflect; "" before the first list.
  std::string version() const;

 private:
  friend class StoreWriter;
  explicit Store(std::shared_ptr<detail::StoreState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::StoreState> state_;
};

/// A difference that a write made to a store; both sides where an object was replaced.
struct Change {
  ObjectPtr before, after;  ///< null before: added; null after: deleted
};

/// The write side, for one thread.
class StoreWriter {
 public:
  explicit StoreWriter(StoreOptions options = {});
  Store reader() const { return Store(state_); }

  /// Starts a list. Its items are collected separately, and readers still see the old contents.
  void begin_list();
  void list_item(Json object);
  /// Replaces the contents with the collected list atomically, and then reports each difference, including deletions.
  void finish_list(
      const std::string& version, const std::function<void(const Change&)>& changed = [](const Change&) {});

  /// One event of a watch. An object older than the stored one is ignored (empty Change).
  Change apply(Json object);
  Change remove(const Json& object);
  /// The same as list_item() and apply() for an object that is already pruned and shared; it is stored as it is.
  void list_pruned(ObjectPtr object);
  Change apply_pruned(ObjectPtr object);
  /// Handles a bookmark: the contents are current as of this version.
  void advance(const std::string& version);

 private:
  void prune(Json& object) const;
  Change put(detail::StoredObject held, ObjectPtr after);
  std::shared_ptr<detail::StoreState> fresh() const;
  detail::StoreState& collected();

  StoreOptions options_;
  std::shared_ptr<detail::StoreState> state_, next_;  ///< `next_` while a list is collected
};

}  // namespace pm::k8s
