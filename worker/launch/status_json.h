// SPDX-License-Identifier: Apache-2.0
// Converts ranks and failures to the JSON that launchers exchange. Values of received JSON are clamped to their valid
// range; values of another type throw json::exception.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "worker/comm/membership/status_table.h"
#include "worker/launch/failure.h"

namespace pm::launch {

/// Returns the status of a rank. `with_address` adds the address of its node.
nlohmann::json rank_to_json(int rank, comm::StatusTable&, bool with_address);
/// Copies the received status of a rank of another node, at `address`, into the table. A rank that has failed stays
/// failed.
void apply_rank_json(const nlohmann::json& rank, comm::StatusTable&, const std::string& address);

nlohmann::json failure_to_json(const Failure&);
Failure failure_from_json(const nlohmann::json&, int ranks);

}  // namespace pm::launch
