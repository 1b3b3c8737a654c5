// A strict reader of Prometheus' text format.
#pragma once
#include <map>
#include <string>

namespace pm::test {

/// Samples by "name{labels}". Throws std::runtime_error for a line that is no exposition, a family that appears twice, a sample outside
/// its family, or histogram buckets that do not grow.
std::map<std::string, double> parse_exposition(const std::string& text);

}  // namespace pm::test
