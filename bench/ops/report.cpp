// SPDX-License-Identifier: Apache-2.0
#include "bench/ops/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace pm::bench {

namespace {

constexpr char row_format[] = "%-20s %-62s %-11s %9s %9s %-11s %12s %16s %8s\n";

const char* text(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Failed:
      return "FAILED";
    case Verdict::Unsupported:
      return "unsupported";
  }
  return "";
}

std::string formatted(const char* format, double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string rate(const Result& result) {
  if (!result.seconds) return "";
  if (result.flops > 0) return formatted("%.1f GFLOP/s", result.flops / *result.seconds / 1e9);
  return formatted("%.2f GB/s", result.bytes / *result.seconds / 1e9);
}

/// Returns how many times the device is as fast as the ATen default.
std::optional<double> speedup(const Result& result) {
  if (!result.seconds || !result.aten_seconds) return std::nullopt;
  return *result.aten_seconds / *result.seconds;
}

}  // namespace

void print_heading() {
  std::printf(row_format, "op", "case", "device", "error", "tolerance", "check", "time", "rate", "vs ATen");
}

void print(const Result& result) {
  const std::optional<double> ratio = speedup(result);
  std::printf(row_format, result.operation.c_str(), result.name.c_str(), result.device.c_str(),
              result.error ? formatted("%.1e", *result.error).c_str() : "-",
              formatted("%.1e", result.tolerance).c_str(), text(result.verdict),
              result.seconds ? formatted("%.2f us", *result.seconds * 1e6).c_str() : "", rate(result).c_str(),
              ratio ? formatted("%.2f", *ratio).c_str() : "");
  if (!result.message.empty()) std::printf("  %s\n", result.message.c_str());
  std::fflush(stdout);
}

nlohmann::json to_json(const Result& result) {
  nlohmann::json json{{"op", result.operation},
                      {"case", result.name},
                      {"device", result.device},
                      {"tolerance", result.tolerance},
                      {"check", text(result.verdict)}};
  if (result.error) json["error"] = *result.error;
  if (!result.message.empty()) json["message"] = result.message;
  if (result.seconds) {
    json["seconds"] = *result.seconds;
    if (result.flops > 0)
      json["gflop_per_second"] = result.flops / *result.seconds / 1e9;
    else
      json["gb_per_second"] = result.bytes / *result.seconds / 1e9;
  }
  if (const std::optional<double> ratio = speedup(result)) json["speedup_over_aten"] = *ratio;
  return json;
}

}  // namespace pm::bench
