// See json_body.h.
#include "worker/server/json_body.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "worker/server/api_error.h"

namespace pm::server {
namespace {

constexpr int kDepth = 16;

std::string text_of(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

std::string shown(const nlohmann::json& value) {
  if (value.is_structured()) return std::string(value.is_array() ? "an array of " : "an object of ") + std::to_string(value.size());
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);   // ASCII, so that cutting is safe
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

nlohmann::json parse_object(std::string_view body) {
  const auto watch_depth = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kDepth) throw ApiError(400, "invalid_json", "the body's JSON is nested deeper than " + std::to_string(kDepth) + " levels");
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
  if (!object.is_object()) throw ApiError(400, "invalid_json", "the body is " + shown(object) + "; a JSON object is needed");
  return object;
}

const nlohmann::json* Fields::find(const std::string& name) {
  known_.push_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t least, int64_t most) {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  const bool too_big = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value->is_number_integer() || too_big || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    const std::string upper = most == INT64_MAX ? " up" : " to " + std::to_string(most);
    throw bad_field(prefix_ + name, shown(*value), "an integer from " + std::to_string(least) + upper);
  }
  return value->get<int64_t>();
}

std::optional<double> Fields::number(const std::string& name, double least, double most, bool above_least) {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  const double found = value->is_number() ? value->get<double>() : NAN;
  if (!(found >= least && found <= most) || (above_least && found == least))
    throw bad_field(prefix_ + name, shown(*value), std::string("a number ") + (above_least ? "above " : "from ") + text_of(least) + " to " + text_of(most));
  return found;
}

std::optional<bool> Fields::boolean(const std::string& name) {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) throw bad_field(prefix_ + name, shown(*value), "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const std::string& name) {
  const auto* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) throw bad_field(prefix_ + name, shown(*value), "a string");
  return value->get<std::string>();
}

void Fields::only(const std::string& name, const nlohmann::json& value) {
  const auto* found = find(name);
  if (found && *found != value) throw bad_field(prefix_ + name, shown(*found), value.is_null() ? "null" : value.dump() + " or null");
}

void Fields::refuse_others() const {
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::string allowed;
    for (const auto& known : known_) allowed += (allowed.empty() ? "" : ", ") + known;
    const std::string field = prefix_ + name.substr(0, 60);
    throw ApiError(400, "unknown_field", field + " is no field of this request; allowed: " + allowed, field);
  }
}

}  // namespace pm::server
