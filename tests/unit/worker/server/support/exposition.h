// SPDX-License-Identifier: Apache-2.0
// Parses Prometheus' text format strictly.
#pragma once
#include <map>
#include <string>

namespace pm::test {

/// Returns the samples by "name{labels}". Throws std::runtime_error for an invalid line, a family that appears twice, a
/// sample outside its family, or histogram buckets that do not grow.
std::map<std::string, double> parse_exposition(const std::string& text);

}  // namespace pm::test
