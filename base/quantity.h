// SPDX-License-Identifier: Apache-2.0
// Parses and formats a Kubernetes resource.Quantity: "80Gi", "500m", "1e3", 16.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace pm::base {

/// The value in thousandths, rounded up; nothing when the text is no quantity or does not fit. "500m" -> 500, "2" ->
/// 2000. Source: apimachinery/pkg/api/resource/quantity.go.
std::optional<int64_t> parse_milli(const std::string&);
/// The whole value, rounded up: "80Gi" -> 85899345920, "500m" -> 1.
std::optional<int64_t> parse_quantity(const std::string&);
/// The same for a field that may be a string or a number.
std::optional<int64_t> quantity_of(const nlohmann::json&);
/// The shortest binary-suffix form: 85899345920 -> "80Gi", 1000 -> "1000".
std::string format_quantity(int64_t value);

}  // namespace pm::base
