// SPDX-License-Identifier: Apache-2.0
// Reports the predicted and measured memory and the state of every rank, for the routes /status and /memory.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "contract/status_report.h"
#include "planner/plan.h"
#include "worker/comm/membership/status_table.h"
#include "worker/server/http/http.h"

namespace pm::server {

using SteadyTime = std::chrono::steady_clock::time_point;

/// Returns the memory that a rank has measured and written to the status table.
Memory measured(const comm::RankStatus&);
/// Returns the memory of the rank's device; nullopt for CPU ranks.
std::optional<DeviceMemory> device_memory(const comm::RankStatus&);
/// Returns the CUDA graphs of the rank; nullopt if none is captured and no capture has failed.
std::optional<GraphUse> graph_use(const comm::RankStatus&);
/// Returns Starting, Loading, Ready, Draining or Failed.
std::string_view name_of(comm::RankState);
/// Returns the state of a rank, Failed if it has failed.
comm::RankState state_of(const comm::RankStatus&);
/// Return the reason and the message of a failed rank, "" otherwise.
std::string failure_reason(const comm::RankStatus&);
std::string failure_message(const comm::RankStatus&);
/// Returns the seconds since the rank's last heartbeat, negative before the first.
double heartbeat_age(const comm::RankStatus&, SteadyTime now);

/// Returns {"ranks": [{"rank", "predicted", "measured", "device"}]} in bytes. Ranks of other nodes, which the table
/// lacks, have no "measured".
nlohmann::json memory_report(const Plan&, comm::StatusTable*);
/// Returns the same report as a text table in MiB, with a line for each rank and source.
std::string memory_table(const Plan&, comm::StatusTable*);

/// Handles the route /memory: returns memory_report, or memory_table if the query has format=text or the Accept header
/// asks for text/plain.
http::Response memory_response(const http::Request&, const Plan&, comm::StatusTable*);

/// Returns the state of the replica: Failed or Draining if any rank is, Ready or Starting if all are, else Loading.
comm::RankState group_state(comm::StatusTable&);
/// Returns the body of /status.
StatusReport status_report(const Plan&, comm::StatusTable&, int64_t replica_generation, bool ready, SteadyTime now);

}  // namespace pm::server
