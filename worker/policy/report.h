// SPDX-License-Identifier: Apache-2.0
// Formats the report of the subcommand `inspect`.
#pragma once
#include <string>

#include "worker/policy/spec/model.h"

namespace pm::policy {

/// Returns a table of the model's parts with their bytes, its stacks, and the names that are not loaded.
std::string inspect_report(const Model&);

}  // namespace pm::policy
