// SPDX-License-Identifier: Apache-2.0
// The termination message of a pod: the launcher of a replica pod, `fetch` and `inspect` write it when they fail, the
// controller reads it.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "contract/reasons.h"

namespace pm {

/// The file that the kubelet reads after the end of a container: the default terminationMessagePath.
inline constexpr const char* termination_log = "/dev/termination-log";

/// The longest message of a subcommand without ranks; the kubelet takes at most 4096 bytes.
inline constexpr size_t max_refusal_bytes = 2048;

/// Why a worker ended.
struct Termination {
  std::string reason;                  ///< the name of a Reason; when it is read, perhaps a word of another version
  std::string message;                 ///< what was found, what was expected and what to do
  std::optional<int> rank, exit_code;  ///< of a replica pod
};

/// Returns {"rank", "reason", "exitCode", "message"} in at most `max_bytes`; the message is truncated to fit, at a
/// UTF-8 character. Bytes that are not UTF-8 are replaced.
std::string to_text(const Termination&, size_t max_bytes);
/// Reads the text of a pod, which may hold anything. Returns nullopt unless it is a JSON object; a field of another
/// type, or a rank out of range, counts as absent.
std::optional<Termination> parse_termination(std::string_view text);

}  // namespace pm
