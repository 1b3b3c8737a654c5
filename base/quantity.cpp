// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <cmath>
#include <limits>

namespace pm::base {
namespace {

using Wide = __int128;
constexpr Wide limit = std::numeric_limits<int64_t>::max();

/// Returns numerator and denominator of a suffix, or {0, 0} for an unknown suffix.
struct Scale {
  Wide up = 0, down = 0;
};

Wide power(Wide base, int exponent) {
  Wide value = 1;
  while (exponent-- > 0) value *= base;
  return value;
}

Scale exponent_scale(const std::string& digits) {
  size_t at = !digits.empty() && (digits[0] == '+' || digits[0] == '-') ? 1 : 0;
  if (at == digits.size() || digits.size() > at + 2 || digits.find_first_not_of("0123456789", at) != std::string::npos)
    return {};
  const int exponent = std::stoi(digits);
  if (exponent > 18 || exponent < -18) return {};
  return exponent >= 0 ? Scale{power(10, exponent), 1} : Scale{1, power(10, -exponent)};
}

Scale scale_of(const std::string& suffix) {
  if (suffix.empty()) return {1, 1};
  static const std::string binary = "KMGTPE", decimal = "kMGTPE", small = "mun";
  if (suffix.size() == 2 && suffix[1] == 'i' && binary.find(suffix[0]) != std::string::npos)
    return {power(1024, binary.find(suffix[0]) + 1), 1};
  if (suffix.size() == 1 && decimal.find(suffix[0]) != std::string::npos)
    return {power(1000, decimal.find(suffix[0]) + 1), 1};
  if (suffix.size() == 1 && small.find(suffix[0]) != std::string::npos)
    return {1, power(1000, small.find(suffix[0]) + 1)};
  if (suffix[0] == 'e' || suffix[0] == 'E') return exponent_scale(suffix.substr(1));
  return {};
}

/// Returns value x unit, rounded away from zero as Kubernetes does. The number has at most 18 digits, so that 128 bits
/// do not overflow.
std::optional<int64_t> parse(const std::string& text, Wide unit) {
  size_t at = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) ++at;
  Wide number = 0, down = 1;
  int digits = 0;
  bool point = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !point) {
      point = true;
    } else if (text[at] >= '0' && text[at] <= '9') {
      if (digits == 18) return {};
      number = number * 10 + (text[at] - '0');
      if (number) ++digits;
      if (point) {
        if (down > power(10, 17)) return {};
        down *= 10;
      }
    } else {
      break;
    }
  }
  const bool any = at > 0 && (text[at - 1] == '.' ? at > 1 && text[at - 2] >= '0' && text[at - 2] <= '9'
                                                  : text[at - 1] >= '0' && text[at - 1] <= '9');
  const Scale scale = scale_of(text.substr(at));
  if (!any || !scale.up) return {};
  const Wide max = std::numeric_limits<Wide>::max();
  const Wide factor = scale.up * unit;
  if (number && factor > max / number) return {};
  if (down > max / scale.down) return {};
  const Wide divisor = down * scale.down, product = number * factor;
  const Wide value = product / divisor + (product % divisor != 0);
  if (value > limit) return {};
  return static_cast<int64_t>(negative ? -value : value);
}

}  // namespace

std::optional<int64_t> parse_milli(const std::string& text) { return parse(text, 1000); }
std::optional<int64_t> parse_quantity(const std::string& text) { return parse(text, 1); }

std::optional<int64_t> quantity_of(const nlohmann::json& value) {
  if (value.is_string()) return parse_quantity(value.get<std::string>());
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(limit)) return {};
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float() && std::abs(value.get<double>()) < 9e18)
    return static_cast<int64_t>(std::ceil(value.get<double>()));
  return {};
}

std::string format_quantity(int64_t value) {
  static const char* suffixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
  int suffix = 0;
  while (suffix < 5 && value != 0 && value % 1024 == 0) {
    value /= 1024;
    ++suffix;
  }
  return std::to_string(value) + suffixes[suffix];
}

}  // namespace pm::base
