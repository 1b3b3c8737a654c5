// SPDX-License-Identifier: Apache-2.0
// The names by which clients may call the model. Several let two versions of a model answer to one name, so that a
// gateway can split its requests between them.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace pm::server {

class ServedNames {
 public:
  ServedNames() = default;
  ServedNames(std::initializer_list<std::string> names) : names_(names) {}
  explicit ServedNames(std::vector<std::string> names) : names_(std::move(names)) {}
  bool empty() const { return names_.empty(); }
  const std::vector<std::string>& all() const { return names_; }
  /// Returns the name that stands in replies. There must be one.
  const std::string& first() const { return names_.front(); }
  bool has(const std::string& name) const;
  /// Throws ApiError 404 that lists the names, unless the requested name is one of them.
  void check(const std::string& requested) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace pm::server
