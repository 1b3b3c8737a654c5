// SPDX-License-Identifier: Apache-2.0
#include "base/json_reader.h"

#include <stdexcept>

namespace pm::base {

std::optional<int64_t> integer_from(const nlohmann::json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  const auto number = value.get<int64_t>();
  return number >= min && number <= max ? std::optional(number) : std::nullopt;
}

void InvalidArgument::fail(const std::string& path, const std::string& found, const std::string& expected) {
  throw std::invalid_argument(path + ": found " + found + ", expected " + expected);
}

void InvalidArgument::missing(const std::string& path) { throw std::invalid_argument(path + " is missing"); }

std::string InvalidArgument::describe(const nlohmann::json& found) {
  const bool small = found.is_number() || found.is_boolean() ||
                     (found.is_string() && found.get_ref<const std::string&>().size() <= 64);
  return small ? found.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) : std::string(found.type_name());
}

}  // namespace pm::base
