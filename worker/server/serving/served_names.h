// SPDX-License-Identifier: Apache-2.0
// The names by which clients may call the model. Several let two versions of a model answer to one name, so that a
// gateway can split its requests between them. An adapter has a name of its own.
#pragma once
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/engine/adapter.h"

namespace pm::server {

class AdapterPool;

class ServedNames {
 public:
  ServedNames() = default;
  ServedNames(std::initializer_list<std::string> names) : names_(names) {}
  explicit ServedNames(std::vector<std::string> names) : names_(std::move(names)) {}
  /// Names the adapters of the pool too, which outlives it. `change` says that they come and go.
  void add(const AdapterPool& adapters, bool change = false) {
    adapters_ = &adapters;
    change_ = change;
  }
  bool change() const { return change_; }
  bool empty() const { return names_.empty(); }
  /// Returns the names of the base model.
  const std::vector<std::string>& all() const { return names_; }
  /// Returns these, then those of the adapters that are loaded.
  std::vector<std::string> with_adapters() const;
  /// Returns the name that stands in replies of the base model. There must be one.
  const std::string& first() const { return names_.front(); }
  /// Returns the name that stands in replies to a request for this one: an adapter's own.
  std::string in_replies(const std::string& requested) const;
  bool has(const std::string& name) const;
  /// Throws ApiError 404 that lists the names, unless the requested name is one of them.
  void check(const std::string& requested) const;
  /// Returns the adapter of this name; nullptr for the base model. Throws as check() does.
  std::shared_ptr<const engine::Adapter> adapter(const std::string& requested) const;

 private:
  std::vector<std::string> names_;
  const AdapterPool* adapters_ = nullptr;
  bool change_ = false;
};

}  // namespace pm::server
