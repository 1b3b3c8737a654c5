// SPDX-License-Identifier: Apache-2.0
// The report of a download at /status of the fetch pod: the worker writes it, the controller reads it.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace pm {

/// The state of a download that waits for another process, which downloads to the same volume.
inline constexpr std::string_view waiting_state = "Waiting";

struct FetchReport {
  std::string state;  ///< Resolving, Waiting, Fetching or Done
  std::string model, revision, commit;
  int64_t fetched_bytes = 0, total_bytes = 0;  ///< bytes on the volume, of the needed files
  int64_t received_bytes = 0;                  ///< bytes that this process received over the network
  int64_t bytes_per_second = 0;                ///< received in the last seconds; 0: unknown, or nothing
  int64_t files = 0, files_done = 0;
  int64_t retries = 0, refetched = 0;  ///< refetched: files whose checksum was wrong
  std::string waits_for;               ///< the process that downloads; in state Waiting
  std::string reason, message;         ///< the last unresolved error; empty without one
};

nlohmann::json to_json(const FetchReport&);
/// Reads the answer of a pod, which may be any JSON. Returns nullopt without a state. A number of bytes becomes one
/// from 0 to 2^50; any other field that cannot be read counts as absent.
std::optional<FetchReport> fetch_report_from_json(const nlohmann::json&);

}  // namespace pm
