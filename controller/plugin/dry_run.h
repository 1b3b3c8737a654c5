// SPDX-License-Identifier: Apache-2.0
// Plans a manifest as the controller would, against the nodes of a cluster, without changing anything.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/object.h"
#include "planner/model_metadata.h"

namespace pm::plugin {

struct DryRun {
  bool fits = false;
  std::string text;  ///< the described plan, or why there is none
};

/// Returns the response to a request that reads; nullopt without one.
using Read = std::function<std::optional<k8s::Json>(const k8s::Request&)>;

/// `model` is the object with the defaults of the API server. `read` is called where the memory of devices stands in
/// ResourceSlices. Throws std::invalid_argument that names the field of a spec which cannot be read.
DryRun dry_run(const k8s::Json& model, const ModelMetadata& metadata, const std::vector<k8s::ObjectPtr>& nodes,
               const Read& read);

/// Returns the metadata of the same checkpoint (source, revision and policy) from the plan of another ParallelModel;
/// nullopt when none has read it. `models` and `config_maps` are those of the namespace.
std::optional<ModelMetadata> known_metadata(const k8s::Json& model, const k8s::Json& models,
                                            const k8s::Json& config_maps);

}  // namespace pm::plugin
