// SPDX-License-Identifier: Apache-2.0
// LoRA adapters as options name them, and the memory that they need.
#pragma once
#include <cstdint>
#include <string>

#include "contract/worker_arguments.h"
#include "worker/cli/options.h"
#include "worker/server/serving/adapter_pool.h"

namespace pm::cli {

/// Returns the two sides of NAME=FOLDER. Throws Error{Usage}.
NamedAdapter named_adapter(const std::string& text);

/// Returns for which adapters every rank keeps memory. Throws Error{ModelUnreadable} for a folder that cannot be
/// served, and Error{Usage} for an adapter whose rank is larger than the options allow.
layers::AdapterCapacity adapter_capacity(const policy::Model&, const ModelOptions&);

/// Returns what the server has to know of the memory of the ranks.
server::AdapterMemory memory_of(const layers::AdapterCapacity&);

/// Throws Error{ModelUnreadable} for a model that generates in a way in which adapters are not served.
void check_takes_adapters(const policy::Model&);

/// Returns the most numbers that one rank keeps for adapters: those of one that holds whole matrices.
int64_t adapter_elements(const policy::Model&, const layers::AdapterCapacity&);

}  // namespace pm::cli
