// SPDX-License-Identifier: Apache-2.0
// The names in a StageState beside those of stacks, under which their states stand.
#pragma once
#include <cstdint>
#include <string>

#include "worker/policy/spec/stack.h"

namespace pm::models {

/// Returns the name of `what` a stack, one of its layers, or a sequence of a layer hands on.
inline std::string stage_key(const char* what, const policy::Stack& stack) {
  return std::string(what) + "/" + stack.name;
}
inline std::string stage_key(const char* what, const policy::Stack& stack, int64_t layer) {
  return stage_key(what, stack) + "/" + std::to_string(layer);
}
inline std::string stage_key(const char* what, const policy::Stack& stack, int64_t layer, size_t sequence) {
  return stage_key(what, stack, layer) + "/" + std::to_string(sequence);
}

}  // namespace pm::models
