// Ranks and failures as launchers tell them to each other. What comes is clipped to what may be; json::exception for what is of another type.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "worker/comm/status.h"
#include "worker/launch/failure.h"

namespace pm::launch {

/// `with_address`: also where its node is.
nlohmann::json told(int rank, comm::StatusBoard&, bool with_address);
/// Writes what another node tells of its rank; `address`: that node's. A rank that has failed stays so.
void mirror(const nlohmann::json& rank, comm::StatusBoard&, const std::string& address);

nlohmann::json told(const Failure&);
Failure failure_from(const nlohmann::json&, int ranks);

}  // namespace pm::launch
