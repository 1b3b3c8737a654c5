// SPDX-License-Identifier: Apache-2.0
// Reads the fields of an object that came from another process.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pm {

/// Reads fields of JSON that another process sent, which may be anything: what cannot be read counts as absent.
class UntrustedObject {
 public:
  explicit UntrustedObject(const nlohmann::json& object) : object_(object) {}

  /// Returns the field; nullptr where there is none.
  const nlohmann::json* find(const char* key) const {
    const auto found = object_.is_object() ? object_.find(key) : object_.end();
    return object_.is_object() && found != object_.end() ? &*found : nullptr;
  }
  std::optional<int64_t> integer(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value || !value->is_number_integer()) return std::nullopt;
    if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return value->get<int64_t>();
  }
  /// Returns a number of bytes, from 0 to 2^50, which is far above any device, so that sums do not overflow; else 0.
  int64_t bytes(const char* key) const { return std::clamp<int64_t>(integer(key).value_or(0), 0, int64_t{1} << 50); }
  /// Returns a text; empty for anything else.
  std::string text(const char* key) const {
    const nlohmann::json* value = find(key);
    return value && value->is_string() ? value->get<std::string>() : std::string();
  }
  /// Returns a duration, from 0 to 10^6 seconds.
  std::optional<double> seconds(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value || !value->is_number() || !std::isfinite(value->get<double>())) return std::nullopt;
    return std::clamp(value->get<double>(), 0.0, 1e6);
  }
  /// Returns the fields of an object; nullopt for anything else.
  std::optional<UntrustedObject> object(const char* key) const {
    const nlohmann::json* value = find(key);
    return value && value->is_object() ? std::optional(UntrustedObject(*value)) : std::nullopt;
  }

 private:
  const nlohmann::json& object_;  ///< outlives this
};

}  // namespace pm
