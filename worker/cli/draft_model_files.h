// SPDX-License-Identifier: Apache-2.0
// A draft model beside the model that it drafts for: its checkpoint, whether it fits the model, and loading it.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "planner/plan.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/speculation/draft_model.h"
#include "worker/policy/spec/model.h"

namespace pm::cli {

/// The checkpoint of a draft model with its policy.
struct DraftModelFiles {
  checkpoint::Checkpoint checkpoint;
  policy::Model model;
  std::filesystem::path folder() const { return checkpoint.folder(); }
};

/// Opens the draft model in a folder, and requires that it can draft for `target`, whose folder is `target_folder`:
/// both decode token by token, and an id is the same token in both, but for a few. Throws Error{ModelUnreadable,
/// UnknownArchitecture, ...} that begins with "--draft-model FOLDER: ".
std::shared_ptr<const DraftModelFiles> open_draft_model(const std::string& folder, const policy::Model& target,
                                                        const std::filesystem::path& target_folder);

/// Requires the same of models whose tokenizers are not at hand. `name` is the draft model's. Throws likewise.
void check_drafts_for(const policy::Model& draft, const std::string& name, const policy::Model& target);

/// Returns what the draft model needs. Throws Error{ModelUnreadable} likewise where it cannot be planned.
DraftNeeds needs_of(const policy::Model& draft, const std::string& name);

/// Loads the draft model whole on `device`, for texts of at most `sequence_length` tokens. `progress` is called with
/// the bytes read so far.
std::shared_ptr<engine::DraftModel> load_draft_model(const DraftModelFiles&, const policy::Model& target,
                                                     int64_t sequence_length, int64_t kv_blocks, at::Device device,
                                                     bool graphs, const std::function<void(int64_t)>& progress);

}  // namespace pm::cli
