// SPDX-License-Identifier: Apache-2.0
// The steps of resolve() that a model with a policy of its own and the parts of a composite have in common.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/builder.h"

namespace pm::policy {

/// A class of a policy.
struct Architecture {
  std::string name;
  Task task = Task::Generate;
  ModelKind kind = ModelKind::Decoder;
  std::vector<std::string> heads, stacks;
  const Node* node = nullptr;
};

/// Returns the name of config.json's first class, or of the policy's first one when config.json names none.
std::string class_of(const CheckpointView&, const Node& policy);
/// Returns the class with this name. Throws Error{UnknownArchitecture} when the policy does not have it, or refuses it
/// or this config.json.
Architecture architecture_of(std::string name, const Node& policy, const Variables&);
/// Returns the class that a row of the policy describes, also one that is refused alone: as a part of another model.
/// Throws Error{UnknownArchitecture} where the policy or the row refuses this config.json.
Architecture described(std::string name, const Node& row, const Node& policy, const Variables&);
void set_class(const Architecture&, Model&);
/// Sets the end, start and forced tokens.
void read_token_ids(const checkpoint::Checkpoint&, const Node& policy, const Variables&, Model&);
/// Builds the stacks and heads of a class. Throws Error{ModelUnreadable} unless every tensor of the view is read, known
/// to another class, or ignored.
void build(const CheckpointView&, const Node& policy, const Architecture&, const std::optional<OuterSource>&, Model&);

/// Builds a model of two parts, each of which has a section of config.json and a policy of its own (composite.cpp).
Model resolve_composite(const CheckpointView&, const Node& policy);

/// Builds a model that retrieves passages, from an encoder of questions, an index and a generator (retrieval.cpp).
Model resolve_retrieval(const CheckpointView&, const Node& policy);

/// The tensors of a tower of images and of its projectors: what their names begin with.
struct ImageTensors {
  std::string tower, projector, deepstack;  ///< the last one is empty where there is none

  std::vector<std::string> prefixes() const;
};

/// Returns where the checkpoint has the tensors that `images` of the policy describes; nothing where the policy or
/// config.json has no such section. Throws Error{ModelUnreadable} where the checkpoint lacks them.
std::optional<ImageTensors> find_image_tensors(const CheckpointView&, const Node& policy);

/// Adds the tower as the first stack, named "vision", with its projector, and says which tokens of the last stack stand
/// for images. Where this version does not run the tower, its tensors are not loaded, and Model::images_refused says
/// why: the texts are served. Throws Error{ModelUnreadable} for tensors that are missing or read by nothing.
void add_image_tower(const CheckpointView&, const Node& policy, const ImageTensors&, Model&);

}  // namespace pm::policy
