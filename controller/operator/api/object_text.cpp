#include "controller/operator/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>

#include "controller/core/object.h"

namespace pm::op {

using k8s::Json;

std::string clip(std::string_view text, size_t bytes) {
  size_t end = text.size();
  if (end > bytes) {
    end = bytes > 3 ? bytes - 3 : 0;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;   // not inside a UTF-8 character
  }
  std::string out(text.substr(0, end));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (end < text.size()) out += "...";
  return out;
}

std::string reason_word(std::string_view text, const std::string& fallback) {
  const auto good = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  if (text.empty() || text.size() > 64 || !std::isalpha(static_cast<unsigned char>(text[0])) || !std::all_of(text.begin(), text.end(), good)) return fallback;
  return std::string(text);
}

std::string bytes_text(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  char out[48];
  std::snprintf(out, sizeof out, unit >= 3 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return out;
}

const Json& at(const Json& object, std::string_view pointer) {
  static const Json nothing;
  const Json* found = k8s::find_at(object, pointer);
  return found ? *found : nothing;
}

std::optional<int64_t> integer_at(const Json& object, std::string_view pointer) {
  const Json& value = at(object, pointer);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<int64_t>();
}

bool bool_at(const Json& object, std::string_view pointer) {
  const Json& value = at(object, pointer);
  return value.is_boolean() && value.get<bool>();
}

std::string annotation_of(const Json& object, const std::string& name) {
  const Json& all = at(object, "/metadata/annotations");
  const auto found = all.is_object() ? all.find(name) : all.end();
  return all.is_object() && found != all.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<int64_t> number_of(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace pm::op
