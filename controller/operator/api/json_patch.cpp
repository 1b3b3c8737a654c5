// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/api/json_patch.h"

#include <algorithm>

namespace pm::op {

using k8s::Json;

Json merge_patch(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : to.items()) {
    const auto old = from.is_object() ? from.find(key) : from.end();
    if (!from.is_object() || old == from.end()) {
      patch[key] = value;
    } else if (*old != value) {
      patch[key] = value.is_object() && old->is_object() ? merge_patch(*old, value) : value;
    }
  }
  if (!from.is_object()) return patch;
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

std::optional<Json> changed_values(const Json& live, const Json& wanted) {
  Json patch = Json::object();
  for (const auto& [key, value] : wanted.items()) {
    const auto old = live.find(key);
    if (old == live.end()) return std::nullopt;
    if (covers(*old, value)) continue;
    if (value.is_array() || old->is_array() || value.is_object() != old->is_object()) return std::nullopt;
    if (!value.is_object()) {
      patch[key] = value;
      continue;
    }
    auto inner = changed_values(*old, value);
    if (!inner) return std::nullopt;
    patch[key] = std::move(*inner);
  }
  return patch;
}

bool covers(const Json& live, const Json& wanted) {
  if (wanted.is_object()) {
    if (!live.is_object()) return false;
    for (const auto& [key, value] : wanted.items()) {
      const auto found = live.find(key);
      if (found == live.end() || !covers(*found, value)) return false;
    }
    return true;
  }
  if (wanted.is_array()) {
    if (!live.is_array() || wanted.empty() || !wanted.front().is_object()) return live == wanted;
    return std::all_of(wanted.begin(), wanted.end(), [&](const Json& one) {
      return std::any_of(live.begin(), live.end(), [&](const Json& other) { return covers(other, one); });
    });
  }
  return live == wanted;
}

}  // namespace pm::op
