// Reads values out of JSON that came from outside: every error names the key, what was found and what was expected.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace pm {

/// One JSON object, and the name under which errors speak of it ("facts", "facts.parts[3]").
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object.is_object()) wrong(name_, object, "an object");
  }

  bool has(const char* key) const { return object_.contains(key); }

  /// An integer in [low, high]; `fallback` when the key is absent. Throws std::invalid_argument.
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t fallback) const { return has(key) ? integer(key, low, high) : fallback; }
  int64_t integer(const char* key, int64_t low, int64_t high) const {
    const nlohmann::json& value = at(key);
    const std::string expected = "an integer from " + std::to_string(low) + " to " + std::to_string(high);
    if (!value.is_number_integer()) wrong(path(key), value, expected);
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) wrong(path(key), value, expected);
    const auto number = value.get<int64_t>();
    if (number < low || number > high) wrong(path(key), value, expected);
    return number;
  }

  /// Printable text of at most `longest` bytes; `fallback` when the key is absent. Throws std::invalid_argument.
  std::string text(const char* key, size_t longest, const std::string& fallback) const { return has(key) ? text(key, longest) : fallback; }
  std::string text(const char* key, size_t longest) const {
    const nlohmann::json& value = at(key);
    const std::string expected = "printable text of at most " + std::to_string(longest) + " bytes";
    if (!value.is_string()) wrong(path(key), value, expected);
    const auto& string = value.get_ref<const std::string&>();
    if (string.size() > longest) fail(path(key), "a text of " + std::to_string(string.size()) + " bytes", expected);
    for (const char c : string) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fail(path(key), "a control character", expected);
    }
    return string;
  }

  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_boolean()) wrong(path(key), at(key), "true or false");
    return at(key).get<bool>();
  }

  /// An array of at most `longest` items. Throws std::invalid_argument.
  const nlohmann::json& list(const char* key, size_t longest) const {
    const nlohmann::json& value = at(key);
    const std::string expected = "a list of at most " + std::to_string(longest) + " items";
    if (!value.is_array()) wrong(path(key), value, expected);
    if (value.size() > longest) fail(path(key), "a list of " + std::to_string(value.size()) + " items", expected);
    return value;
  }

  Reader object(const char* key) const { return {at(key), path(key)}; }
  std::string path(const char* key) const { return name_ + "." + key; }
  std::string path(const char* key, size_t index) const { return path(key) + "[" + std::to_string(index) + "]"; }

  [[noreturn]] static void fail(const std::string& path, const std::string& found, const std::string& expected) {
    throw std::invalid_argument(path + ": found " + found + ", expected " + expected);
  }
  [[noreturn]] static void wrong(const std::string& path, const nlohmann::json& found, const std::string& expected) {
    const bool small = found.is_number() || found.is_boolean() || (found.is_string() && found.get_ref<const std::string&>().size() <= 64);
    fail(path, small ? found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) : std::string(found.type_name()), expected);
  }

 private:
  const nlohmann::json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw std::invalid_argument(path(key) + " is missing");
    return *found;
  }
  const nlohmann::json& object_;
  std::string name_;
};

}  // namespace pm
