// SPDX-License-Identifier: Apache-2.0
// Reads the JSON body of a request field by field. Errors name the field, what was found and what is allowed.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"

namespace pm::server {

/// Levels of JSON in a body, and in one of a route that takes schemas.
constexpr int max_depth = 16, max_generation_depth = 512;

/// Parses a JSON object of at most `depth` levels. Throws ApiError 400 with the position of a syntax error.
nlohmann::json parse_object(std::string_view body, int depth = max_depth);

/// Returns `value` as JSON text for a message, truncated to 60 bytes.
std::string json_excerpt(const nlohmann::json& value);

/// Returns the known name that is most similar to an unknown one, or "" if none is similar.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

/// The errors of a field of a request: ApiError 400.
struct FieldErrors {
  static constexpr bool null_is_absent = true;
  [[noreturn]] static void fail(const std::string& path, const std::string& found, const std::string& allowed);
  static std::string describe(const nlohmann::json& found) { return json_excerpt(found); }
};

/// Reads the fields of an object; null counts as absent. refuse_others() refuses fields that were not read.
class Fields {
 public:
  /// `name` is the name of the object in messages, such as "stream_options"; the body itself has none.
  explicit Fields(const nlohmann::json& object, std::string name = "")
      : object_(object), reader_(object, std::move(name)) {}
  /// Returns the raw value, or nullptr if it is absent.
  const nlohmann::json* find(const std::string& name);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  std::optional<bool> boolean(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  /// Reads a field for which one value only is supported; any other throws ApiError 400.
  void only(const std::string& name, const nlohmann::json& value);
  /// Returns the names of the fields that were not read.
  std::vector<std::string> unread() const;
  /// Returns a field's name in messages: "stream_options.include_usage".
  std::string path(const std::string& name) const { return reader_.path(name); }
  /// Throws ApiError 400 that names the first field that was not read, and all known fields.
  void refuse_others() const;

 private:
  const nlohmann::json& object_;
  base::BasicJsonReader<FieldErrors> reader_;
  std::vector<std::string> known_;
};

}  // namespace pm::server
