// SPDX-License-Identifier: Apache-2.0
// Handles the fields of a request that its route does not know.
#pragma once
#include <string>
#include <vector>

#include "worker/server/http/json_body.h"
#include "worker/server/http/router.h"

namespace pm::server {

/// Collects the unknown fields of a request, which are ignored, or refuses the first of them.
class UnknownFields {
 public:
  explicit UnknownFields(bool strict) : strict_(strict) {}
  /// Takes the fields of an object that were not read. Throws ApiError 400 where requests are strict.
  void take(const Fields&);
  const std::vector<std::string>& names() const { return names_; }
  /// Writes the names into the log, and into the reply's header x-ignored-fields. It holds at most 16 names, each of at
  /// most 60 characters; others than those of JSON paths become '_'.
  void report(const RoutedRequest&, http::Response&) const;

 private:
  bool strict_;
  std::vector<std::string> names_;
};

}  // namespace pm::server
