// SPDX-License-Identifier: Apache-2.0
// A part of a model of several families: a section of config.json, its tensors, and the policy of its family.
#pragma once
#include <string>

#include "worker/policy/document.h"
#include "worker/policy/resolution.h"

namespace pm::policy {

/// A part of a composite.
struct Part {
  CheckpointView view;
  Node policy;
  std::string type;
  Variables variables;
  Model model;
};

/// Returns the view of a section of config.json and of the tensors that begin with `before` and the section's name.
CheckpointView view_of(const CheckpointView& whole, const std::string& section, const std::string& before = {});
/// Finds the policy of a part whose view is set; `section` names the part in the policy. Throws
/// Error{ModelUnreadable} where config.json has no such section, Error{UnknownArchitecture} for an unknown family.
void open_part(Part&, const Node& section);
/// Returns "the KEY of config.json is of model_type TYPE", for messages.
std::string of_part(const Part&, const std::string& key);
/// Gives a stack of a part its name in the composite.
void rename_stack(Model& part, const std::string& stack, const std::string& name);

}  // namespace pm::policy
