// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/json_body.h"

#include <algorithm>
#include <utility>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

/// Returns the Levenshtein distance of `a` and `b`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = before + (a[i - 1] != b[j - 1]);
      before = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

/// Returns whether `known` contains every word of `name`, as max_new_tokens contains those of max_tokens.
bool has_words(std::string_view known, std::string_view name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('_', begin), name.size());
    if (known.find(name.substr(begin, end - begin)) == known.npos) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  name = name.substr(0, 60);
  std::string best;
  size_t least = std::max<size_t>(2, name.size() / 3) + 1;
  for (const auto& one : known) {
    const size_t away = !name.empty() && has_words(one, name) ? 1 : distance(name, one);
    if (away < least) least = away, best = one;
  }
  return best;
}

std::string json_excerpt(const nlohmann::json& value) {
  if (value.is_structured())
    return std::string(value.is_array() ? "an array of " : "an object of ") + std::to_string(value.size());
  std::string text =
      value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);  // ASCII, so that truncating is safe
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

nlohmann::json parse_object(std::string_view body, int depth) {
  const auto watch_depth = [depth](int reached, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (reached > depth)
      throw ApiError(400, "invalid_json", "the body's JSON is nested deeper than " + std::to_string(depth) + " levels");
    return true;
  };
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(body, watch_depth);
  } catch (const nlohmann::json::exception& error) {
    std::string what = error.what();
    what = what.substr(std::min(what.size(), what.find("] ") == what.npos ? 0 : what.find("] ") + 2)).substr(0, 200);
    throw ApiError(400, "invalid_json", "the body is not JSON: " + what);
  }
  if (!object.is_object())
    throw ApiError(400, "invalid_json", "the body is " + json_excerpt(object) + "; expected a JSON object");
  return object;
}

void FieldErrors::fail(const std::string& path, const std::string& found, const std::string& allowed) {
  throw bad_field(path, found, allowed);
}

const nlohmann::json* Fields::find(const std::string& name) {
  known_.push_back(name);
  return reader_.find(name);
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t least, int64_t most) {
  known_.push_back(name);
  return reader_.optional_integer(name, least, most);
}

std::optional<bool> Fields::boolean(const std::string& name) {
  known_.push_back(name);
  return reader_.optional_flag(name);
}

std::optional<std::string> Fields::text(const std::string& name) {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) reader_.wrong(reader_.path(name), *value, "a string");
  return value->get<std::string>();
}

void Fields::only(const std::string& name, const nlohmann::json& value) {
  const auto* found = find(name);
  if (found && *found != value)
    reader_.wrong(reader_.path(name), *found, value.is_null() ? "null" : value.dump() + " or null");
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items())
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) names.push_back(name);
  return names;
}

void Fields::refuse_others() const {
  for (const std::string& name : unread()) {
    std::string allowed;
    for (const auto& known : known_) allowed += (allowed.empty() ? "" : ", ") + known;
    const std::string field = reader_.path(name.substr(0, 60)), near = nearest_name(name, known_);
    throw ApiError(400, "unknown_field",
                   field + " is no field of this request" + (near.empty() ? "" : ", the nearest is " + near) +
                       "; allowed: " + allowed,
                   field);
  }
}

}  // namespace pm::server
