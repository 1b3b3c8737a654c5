// A local copy of a collection. Many readers hold a Store; the one watcher of the collection holds the StoreWriter.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/core/object.h"

namespace pm::k8s {

/// Removes what nobody reads before an object is stored, to keep memory small.
using Prune = std::function<void(Json&)>;
/// Drops metadata.managedFields and the last-applied-configuration annotation.
void prune_common(Json& object);

/// What a store holds and how it can be asked.
struct StoreOptions {
  std::vector<std::string> label_indexes;   ///< label names for with_label(); the owner index is always there
  Prune prune = prune_common;
};

namespace detail { struct StoreState; }

/// Read-only handle, cheap to copy, thread-safe. Objects are immutable snapshots; they stay valid after the store moved on.
class Store {
 public:
  /// The object, or null.
  ObjectPtr get(const Key&) const;
  /// All objects, ordered by key. Empty until synced.
  std::vector<ObjectPtr> list() const;
  /// Objects whose controlling owner has this uid, ordered by key.
  std::vector<ObjectPtr> owned_by(const std::string& uid) const;
  /// Objects with this value of a label named in StoreOptions::label_indexes, ordered by key. Throws std::logic_error for another label.
  std::vector<ObjectPtr> with_label(const std::string& name, const std::string& value) const;
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
  /// Swaps the collected list in, in one step. Returns what differs from the old contents, deletions of vanished objects included.
  std::vector<Change> finish_list(const std::string& version);

  /// One event of a watch. An object older than the stored one is ignored (empty Change).
  Change apply(Json object);
  Change remove(const Json& object);
  /// list_item() and apply() of an object that is pruned already, without a copy of it.
  void list_pruned(ObjectPtr object);
  Change apply_pruned(ObjectPtr object);
  /// A bookmark: contents are current as of this version.
  void advance(const std::string& version);

 private:
  void prune(Json& object) const;
  std::shared_ptr<detail::StoreState> state_;
  StoreOptions options_;
  std::map<Key, ObjectPtr> list_;
};

}  // namespace pm::k8s
