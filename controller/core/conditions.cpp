// SPDX-License-Identifier: Apache-2.0
#include "controller/core/conditions.h"

#include "controller/core/time.h"

namespace pm::k8s {

namespace {

/// Returns whether the field is a string with this value.
bool is(const Json& object, const char* field, const std::string& text) {
  if (!object.is_object()) return false;
  const auto found = object.find(field);
  return found != object.end() && found->is_string() && found->get_ref<const std::string&>() == text;
}

}  // namespace

bool set_condition(Json& conditions, const Condition& wanted, std::chrono::system_clock::time_point now) {
  if (!conditions.is_array()) conditions = Json::array();
  Json next = {{"type", wanted.type},
               {"status", wanted.status ? "True" : "False"},
               {"reason", wanted.reason},
               {"message", wanted.message},
               {"observedGeneration", wanted.observed_generation}};
  for (Json& present : conditions) {
    if (!is(present, "type", wanted.type)) continue;
    const bool same_status =
        is(present, "status", wanted.status ? "True" : "False") && present.contains("lastTransitionTime");
    next["lastTransitionTime"] = same_status ? present["lastTransitionTime"] : Json(format_time(now));
    if (present == next) return false;
    present = std::move(next);
    return true;
  }
  next["lastTransitionTime"] = format_time(now);
  conditions.push_back(std::move(next));
  return true;
}

const Json* find_condition(const Json& conditions, const std::string& type) {
  if (!conditions.is_array()) return nullptr;
  for (const Json& present : conditions) {
    if (is(present, "type", type)) return &present;
  }
  return nullptr;
}

bool condition_is_true(const Json& conditions, const std::string& type) {
  const Json* found = find_condition(conditions, type);
  return found && is(*found, "status", "True");
}

}  // namespace pm::k8s
