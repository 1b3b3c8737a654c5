// SPDX-License-Identifier: Apache-2.0
// Aligns columns as kubectl does.
#pragma once
#include <string>
#include <vector>

namespace pm::plugin {

/// Returns the rows as lines whose columns are three spaces apart. The first row is the head; no line ends in spaces.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace pm::plugin
