// SPDX-License-Identifier: Apache-2.0
// Collects what an engineer asks for first into a folder that can be sent to one.
#pragma once
#include <filesystem>
#include <string>

#include "controller/plugin/kubectl.h"

namespace pm::plugin {

/// Writes the ParallelModel, its children, Events, nodes, logs and the live /status of its pods to `folder`, which must
/// not exist. No Secret is read. What cannot be read leaves a line in errors.txt. Returns the number of files. Throws
/// KubectlFailed when the ParallelModel itself cannot be read, and std::filesystem::filesystem_error.
int write_bundle(const Kubectl&, const std::string& model, const std::filesystem::path& folder);

}  // namespace pm::plugin
