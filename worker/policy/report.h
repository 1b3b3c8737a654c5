// What `inspect` shows people.
#pragma once
#include <string>

#include "worker/policy/model.h"

namespace pm::policy {

/// A table of the model's parts with their bytes, its stacks, and the names that are not loaded.
std::string inspect_report(const Model&);

}  // namespace pm::policy
