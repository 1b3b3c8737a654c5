// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/api/object_text.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/json_reader.h"
#include "base/utf8.h"
#include "controller/core/object.h"

namespace pm::op {

using k8s::Json;

std::string clip(std::string_view text, size_t bytes) {
  const bool fits = text.size() <= bytes;
  std::string out(fits ? text : base::truncate_utf8(text, bytes > 3 ? bytes - 3 : 0));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (!fits) out += "...";
  return out;
}

std::string reason_word(std::string_view text, const std::string& fallback) {
  const auto good = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  if (text.empty() || text.size() > 64 || !std::isalpha(static_cast<unsigned char>(text[0])) ||
      !std::all_of(text.begin(), text.end(), good))
    return fallback;
  return std::string(text);
}

const Json& at(const Json& object, std::string_view pointer) {
  static const Json nothing;
  const Json* found = k8s::find_at(object, pointer);
  return found ? *found : nothing;
}

std::optional<int64_t> integer_at(const Json& object, std::string_view pointer) {
  return base::integer_from(at(object, pointer));
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

std::optional<int64_t> parse_integer(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace pm::op
