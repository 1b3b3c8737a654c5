// SPDX-License-Identifier: Apache-2.0
// Reads the fields of untrusted JSON: every error names the field, what was found and what was expected.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/range.h"

namespace pm::base {

/// Returns the integer; nothing for any other value, and for an integer outside of [min, max].
std::optional<int64_t> integer_from(const nlohmann::json& value, int64_t min = INT64_MIN, int64_t max = INT64_MAX);

/// The errors of a JsonReader that no reader of requests needs: std::invalid_argument, and null is a value.
struct InvalidArgument {
  static constexpr bool null_is_absent = false;
  /// Throws "plan.ranks: found 3 ranks, expected 2".
  [[noreturn]] static void fail(const std::string& path, const std::string& found, const std::string& expected);
  /// Throws "plan.ranks is missing".
  [[noreturn]] static void missing(const std::string& path);
  /// Returns a number, a boolean or a short string as JSON text, and the type of any other value.
  static std::string describe(const nlohmann::json& found);
};

/// A JSON object and its name in errors: "plan", "plan.ranks[3]", or "" for fields that are named by themselves.
/// `Errors` decides which exception an error is, how a found value is described, and whether null counts as absent.
template <class Errors>
class BasicJsonReader {
 public:
  BasicJsonReader(const nlohmann::json& object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object.is_object()) wrong(name_, object, "an object");
  }

  /// Returns the raw value, or nullptr if it is absent.
  const nlohmann::json* find(const std::string& key) const {
    const auto found = object_.find(key);
    return found == object_.end() || (Errors::null_is_absent && found->is_null()) ? nullptr : &*found;
  }
  bool has(const std::string& key) const { return find(key) != nullptr; }

  /// Returns an integer in [min, max]; throws for any other value, and for an absent one.
  int64_t integer(const std::string& key, int64_t min, int64_t max) const { return checked(key, at(key), min, max); }
  int64_t integer(const std::string& key, int64_t min, int64_t max, int64_t fallback) const {
    return optional_integer(key, min, max).value_or(fallback);
  }
  std::optional<int64_t> optional_integer(const std::string& key, int64_t min, int64_t max) const {
    const nlohmann::json* value = find(key);
    return value ? std::optional(checked(key, *value, min, max)) : std::nullopt;
  }

  bool flag(const std::string& key, bool fallback) const { return optional_flag(key).value_or(fallback); }
  std::optional<bool> optional_flag(const std::string& key) const {
    const nlohmann::json* value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) wrong(path(key), *value, "true or false");
    return value->get<bool>();
  }

  /// Returns printable text of at most `max_bytes` bytes; throws for any other value, and for an absent one.
  std::string text(const std::string& key, size_t max_bytes) const {
    const nlohmann::json& value = at(key);
    const std::string expected = "printable text of at most " + std::to_string(max_bytes) + " bytes";
    if (!value.is_string()) wrong(path(key), value, expected);
    const auto& string = value.get_ref<const std::string&>();
    if (string.size() > max_bytes) fail(path(key), "a text of " + std::to_string(string.size()) + " bytes", expected);
    for (const char c : string) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fail(path(key), "a control character", expected);
    }
    return string;
  }
  std::string text(const std::string& key, size_t max_bytes, const std::string& fallback) const {
    return has(key) ? text(key, max_bytes) : fallback;
  }

  /// Returns an array of at most `max_items` items; throws for any other value, and for an absent one.
  const nlohmann::json& list(const std::string& key, size_t max_items) const {
    const nlohmann::json& value = at(key);
    const std::string expected = "a list of at most " + std::to_string(max_items) + " items";
    if (!value.is_array()) wrong(path(key), value, expected);
    if (value.size() > max_items) fail(path(key), "a list of " + std::to_string(value.size()) + " items", expected);
    return value;
  }

  BasicJsonReader object(const std::string& key) const { return {at(key), path(key)}; }
  std::string path(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }
  std::string path(const std::string& key, size_t index) const { return path(key) + "[" + std::to_string(index) + "]"; }

  [[noreturn]] static void fail(const std::string& path, const std::string& found, const std::string& expected) {
    Errors::fail(path, found, expected);
  }
  [[noreturn]] static void wrong(const std::string& path, const nlohmann::json& found, const std::string& expected) {
    Errors::fail(path, Errors::describe(found), expected);
  }

 private:
  const nlohmann::json& at(const std::string& key) const {
    const nlohmann::json* value = find(key);
    if (!value) Errors::missing(path(key));
    return *value;
  }
  int64_t checked(const std::string& key, const nlohmann::json& value, int64_t min, int64_t max) const {
    const auto number = integer_from(value, min, max);
    if (!number) wrong(path(key), value, IntegerRange{min, max}.text());
    return *number;
  }

  const nlohmann::json& object_;
  std::string name_;
};

using JsonReader = BasicJsonReader<InvalidArgument>;

}  // namespace pm::base
