// What every rank holds, planned and measured, as the /status and /memory routes show it.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "planner/plan.h"
#include "worker/comm/status.h"
#include "worker/server/http.h"

namespace pm::server {

using SteadyTime = std::chrono::steady_clock::time_point;

/// {"weights", "kv", "activations", "communicator", "runtime", "total"} in bytes.
nlohmann::json memory_json(const Memory&);
/// A rank's own figures off the board.
Memory measured(const comm::RankStatus&);
/// {"total", "free", "reserved", "allocated", "communicator"} of the rank's device, in bytes; null for ranks on the processor.
nlohmann::json device_json(const comm::RankStatus&);
/// {"recorded", "replayed", "bytes"}: sizes of batches whose steps are recorded, steps that were run as such, what that holds of the device's memory; null where nothing is recorded.
nlohmann::json graphs_json(const comm::RankStatus&);
/// Starting, Loading, Ready, Draining or Failed.
std::string_view name_of(comm::RankState);
comm::RankState state_of(const comm::RankStatus&);
/// The reason and message that a failed rank left, "" otherwise.
std::string failure_reason(const comm::RankStatus&);
std::string failure_message(const comm::RankStatus&);
/// Seconds since the rank's last heartbeat; negative before its first.
double heartbeat_age(const comm::RankStatus&, SteadyTime now);

/// {"ranks": [{"rank", "predicted", "measured", "device"}]}; bytes. Ranks that the board lacks (another node's) have no "measured".
nlohmann::json memory_report(const Plan&, comm::StatusBoard*);
/// The same for people: a table in MiB, one line per rank and source.
std::string memory_table(const Plan&, comm::StatusBoard*);

/// The route /memory: memory_report, or memory_table when the query has format=text or the Accept header asks for text/plain.
http::Response memory_response(const http::Request&, const Plan&, comm::StatusBoard*);

/// What the whole group is: Failed if a rank is, then Draining, Ready when all are, Loading, Starting.
comm::RankState group_state(comm::StatusBoard&);
/// The body of /status: {"state", "ready", "incarnation", "ranks": [...]}.
nlohmann::json status_report(const Plan&, comm::StatusBoard&, int64_t incarnation, bool ready, SteadyTime now);

}  // namespace pm::server
