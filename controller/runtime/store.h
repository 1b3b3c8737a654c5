// A local copy of a collection. Many readers hold a Store; the one watcher of the collection holds the StoreWriter.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/core/object.h"

namespace pm::k8s {

/// Removes what nobody reads before an object is stored, to keep memory small.
using Prune = std::function<void(Json&)>;
/// Drops metadata.managedFields and the last-applied-configuration annotation.
void prune_common(Json& object);

/// The value by which an index finds an object; "": the index does not know the object.
using IndexValue = std::function<std::string(const Json&)>;
IndexValue by_label(std::string name);

/// What a store holds and how it can be asked.
struct StoreOptions {
  std::map<std::string, IndexValue> indexes;   ///< by name, for with(); the owner index is always there
  Prune prune = prune_common;
  /// Objects are kept packed and unpacked for each reader: a tenth of the memory for some microseconds a look. For collections with many objects of which a reader wants
  /// few; walks over all of them should go by an index.
  bool packed = false;
};

namespace detail {
struct StoreState;
class Held;
}

/// Read-only handle, cheap to copy, thread-safe. Objects are immutable snapshots; they stay valid after the store moved on.
class Store {
 public:
  /// The object, or null.
  ObjectPtr get(const Key&) const;
  /// All objects, ordered by key. Empty until synced.
  std::vector<ObjectPtr> list() const;
  /// Objects whose controlling owner has this uid, ordered by key.
  std::vector<ObjectPtr> owned_by(const std::string& uid) const;
  /// Objects that have this value in an index named in StoreOptions::indexes, ordered by key. Throws std::logic_error for another index.
  std::vector<ObjectPtr> with(const std::string& index, const std::string& value) const;
  /// The keys of the same, and of all objects, without a look at them.
  std::vector<Key> keys_with(const std::string& index, const std::string& value) const;
  std::vector<Key> keys() const;
  size_t size() const;
  /// True once the first whole list is in. Never false again.
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
  ObjectPtr before, after;    ///< null before: added; null after: deleted
};

/// The write side, for one thread.
class StoreWriter {
 public:
  explicit StoreWriter(StoreOptions options = {});
  Store reader() const { return Store(state_); }

  /// Starts a list: what follows is collected aside, and readers go on seeing the old contents.
  void begin_list();
  void list_item(Json object);
  /// Swaps the collected list in, in one step. Then tells what differs from the old contents, deletions of vanished objects included, one by one.
  void finish_list(const std::string& version, const std::function<void(const Change&)>& changed = [](const Change&) {});

  /// One event of a watch. An object older than the stored one is ignored (empty Change).
  Change apply(Json object);
  Change remove(const Json& object);
  /// list_item() and apply() of an object that is pruned already, and shared: it is kept as it is.
  void list_pruned(ObjectPtr object);
  Change apply_pruned(ObjectPtr object);
  /// A bookmark: contents are current as of this version.
  void advance(const std::string& version);

 private:
  void prune(Json& object) const;
  Change put(detail::Held held, ObjectPtr after);
  std::shared_ptr<detail::StoreState> fresh() const;
  detail::StoreState& collected();

  StoreOptions options_;
  std::shared_ptr<detail::StoreState> state_, next_;   ///< `next_` while a list is collected
};

}  // namespace pm::k8s
