// A request's JSON, read field by field with errors that name the field, what was found and what is allowed.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pm::server {

/// Parses an object of at most 16 levels. Throws ApiError 400 with the position of the fault.
nlohmann::json parse_object(std::string_view body);

/// `value` as JSON text for a message, at most 60 bytes of it.
std::string shown(const nlohmann::json& value);

/// Which of the names an unknown one may mean; empty when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

/// Reads fields; null counts as absent. At the end, fields nobody asked for are refused.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object, std::string prefix = "") : object_(object), prefix_(std::move(prefix)) {}
  /// The raw value, or nullptr when absent.
  const nlohmann::json* find(const std::string& name);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  std::optional<double> number(const std::string& name, double least, double most, bool above_least = false);
  std::optional<bool> boolean(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  /// A field that we serve with one value only: 400 for any other.
  void only(const std::string& name, const nlohmann::json& value);
  /// Throws ApiError 400 that names the first field not asked for and all that were.
  void refuse_others() const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;                 ///< of names in messages: "stream_options."
  std::vector<std::string> known_;
};

}  // namespace pm::server
