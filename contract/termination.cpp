// SPDX-License-Identifier: Apache-2.0
#include "contract/termination.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace pm {

namespace {

constexpr int64_t max_rank = 65535;

std::string render(const Termination& termination, const std::string& message) {
  nlohmann::ordered_json json;
  if (termination.rank) json["rank"] = *termination.rank;
  json["reason"] = termination.reason;
  if (termination.exit_code) json["exitCode"] = *termination.exit_code;
  json["message"] = message;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<int> integer_at(const nlohmann::json& object, const char* key, int64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(most)) return std::nullopt;
  const auto value = found->get<int64_t>();
  return value >= 0 && value <= most ? std::optional(static_cast<int>(value)) : std::nullopt;
}

}  // namespace

std::string to_text(const Termination& termination, size_t max_bytes) {
  std::string message = termination.message;
  std::string text = render(termination, message);
  while (text.size() > max_bytes && !message.empty()) {  // escaped quotes and control characters take several bytes
    const size_t over = text.size() - max_bytes;
    const size_t keep = message.size() - std::min(message.size(), std::max<size_t>(1, over / 6));
    message.resize(base::truncate_utf8(message, keep).size());
    text = render(termination, message);
  }
  return text;
}

std::optional<Termination> parse_termination(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return Termination{.reason = text_at(json, "reason"),
                     .message = text_at(json, "message"),
                     .rank = integer_at(json, "rank", max_rank),
                     .exit_code = integer_at(json, "exitCode", 255)};
}

}  // namespace pm
