// SPDX-License-Identifier: Apache-2.0
// Results of the cases, as a table or as JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace pm::bench {

enum class Verdict { Ok, Failed, Unsupported };

/// One case on one device.
struct Result {
  std::string operation, name, device;
  double tolerance = 0;
  Verdict verdict = Verdict::Unsupported;
  std::optional<double> error;                  ///< no value: unsupported, or the call threw
  std::string message;                          ///< what the call threw
  std::optional<double> seconds, aten_seconds;  ///< of one call; aten_seconds: of the ATen default on the same device
  double bytes = 0, flops = 0;                  ///< as in Case
};

/// Prints the heading of the table, and one line of it.
void print_heading();
void print(const Result&);
nlohmann::json to_json(const Result&);

}  // namespace pm::bench
