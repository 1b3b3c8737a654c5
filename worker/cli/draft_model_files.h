// SPDX-License-Identifier: Apache-2.0
// What drafts for a model and is loaded beside it: another checkpoint, or the module for multi-token prediction of its
// own. Whether it fits the model, what it needs, and loading it.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "planner/plan.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/speculation/drafter.h"
#include "worker/policy/spec/model.h"

namespace pm::cli {

/// The checkpoint of what drafts, and the model that is loaded of it.
struct DraftModelFiles {
  checkpoint::Checkpoint checkpoint;
  policy::Model model;
  bool is_mtp = false;  ///< a module of the model's own checkpoint
  std::filesystem::path folder() const { return checkpoint.folder(); }
};

/// Opens the draft model in a folder, and requires that it can draft for `target`, whose folder is `target_folder`:
/// both decode token by token, and an id is the same token in both, but for a few. Throws Error{ModelUnreadable,
/// UnknownArchitecture, ...} that begins with "--draft-model FOLDER: ".
std::shared_ptr<const DraftModelFiles> open_draft_model(const std::string& folder, const policy::Model& target,
                                                        const std::filesystem::path& target_folder);

/// Requires the same of models whose tokenizers are not at hand. `name` is the draft model's. Throws likewise.
void check_drafts_for(const policy::Model& draft, const std::string& name, const policy::Model& target);

/// Opens the module for multi-token prediction in the folder of `target`, whose policy file is `policy` (empty: the
/// built-in one). Throws Error{ModelUnreadable, ...} that begins with "--speculation mtp: " where there is none, or
/// nothing can be drafted for the model.
std::shared_ptr<const DraftModelFiles> open_mtp_module(const std::filesystem::path& folder, const std::string& policy,
                                                       const policy::Model& target);

/// Returns the module of a checkpoint, to which it refers. Throws likewise.
policy::Model mtp_module(const checkpoint::Checkpoint&, const std::string& policy, const policy::Model& target);

/// Returns what a draft model needs; `name` is its folder, or "" for the module. Throws Error{ModelUnreadable} that
/// begins as those of either where it cannot be planned.
DraftNeeds needs_of(const policy::Model& draft, const std::string& name);

/// Loads what drafts whole on `device`, for texts of at most `sequence_length` tokens, and returns what makes its
/// drafters. `progress` is called with the bytes read so far.
engine::Speculation load_drafter(const DraftModelFiles&, const policy::Model& target, int64_t sequence_length,
                                 int64_t kv_blocks, at::Device device, bool graphs,
                                 const std::function<void(int64_t)>& progress);

}  // namespace pm::cli
