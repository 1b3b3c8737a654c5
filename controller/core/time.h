// SPDX-License-Identifier: Apache-2.0
// Parses and formats times as Kubernetes does.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace pm::k8s {

using WallTime = std::chrono::system_clock::time_point;
/// metav1.Time: "2026-01-31T12:00:00Z".
std::string format_time(WallTime);
/// metav1.MicroTime: "2026-01-31T12:00:00.000000Z".
std::string format_micro_time(WallTime);
/// Either form, UTC or with an offset; nothing when it is not a time.
std::optional<WallTime> parse_time(const std::string&);

}  // namespace pm::k8s
