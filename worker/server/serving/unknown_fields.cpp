// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/unknown_fields.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/log.h"

namespace pm::server {
namespace {

constexpr size_t max_names = 16, max_name_bytes = 60;

/// Names come from the client, and must break neither the header nor the line of the log.
std::string sanitized(std::string name) {
  if (name.size() > max_name_bytes) name.resize(max_name_bytes);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("_-.[]").find(c) == std::string_view::npos)
      c = '_';
  return name;
}

}  // namespace

void UnknownFields::take(const Fields& fields) {
  if (strict_) return fields.refuse_others();
  for (const std::string& name : fields.unread()) names_.push_back(fields.path(name));
}

void UnknownFields::report(const RoutedRequest& call, http::Response& response) const {
  if (names_.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names_.size(), max_names); ++i) list += (i == 0 ? "" : ", ") + sanitized(names_[i]);
  if (names_.size() > max_names) list += ", ...";
  LOG(INFO) << "id=" << call.request.id << " ignored fields: " << list;
  response.headers.emplace_back("x-ignored-fields", list);
}

}  // namespace pm::server
