// SPDX-License-Identifier: Apache-2.0
// The list of conditions in a status, as metav1.Condition describes it.
#pragma once
#include <chrono>
#include <string>

#include "controller/core/json.h"

namespace pm::k8s {

struct Condition {
  std::string type;
  bool status = false;  ///< "True" or "False"
  std::string reason, message;
  long observed_generation = 0;
};

/// Sets one condition in a list (an array; null becomes one), keeping the order of types. lastTransitionTime moves to
/// `now` only when the status changes. Returns true when the list changed.
bool set_condition(Json& conditions, const Condition&, std::chrono::system_clock::time_point now);
/// The condition of a type, or null.
const Json* find_condition(const Json& conditions, const std::string& type);
/// True when the condition is there with status "True".
bool condition_is_true(const Json& conditions, const std::string& type);

}  // namespace pm::k8s
