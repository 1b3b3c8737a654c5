// SPDX-License-Identifier: Apache-2.0
// The LoRA adapters that a server has loaded beside its base model, by the names that requests use.
#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/policy/adapter/adapter_targets.h"
#include "worker/policy/adapter/saved_modules.h"

namespace pm::server {

/// For which adapters the ranks have memory.
struct AdapterMemory {
  int64_t slots = 0, rank = 0;  ///< adapters that are loaded at once, and the largest rank of their factors
  int64_t saving_slots = 0;     ///< of the slots, the first ones: for adapters that have whole modules
  std::set<std::string> saved;  ///< of the model, which these may replace
};

/// Loads adapters into the slots of the engine's ranks. A slot is free again when its adapter is unloaded and no
/// request has it any more. Thread-safe.
class AdapterPool {
 public:
  using Adapter = std::shared_ptr<const engine::Adapter>;
  /// Engine and model outlive the pool.
  AdapterPool(engine::Engine&, const policy::Model&, AdapterMemory);
  /// Loads an adapter and returns when requests may name it. `path` is its folder as the user gave it. Throws
  /// Error{ModelUnreadable} for a folder that cannot be served, Error{InvalidRequest} for a name that is taken and
  /// where all slots are, and what the engine throws.
  Adapter load(const std::string& name, const std::filesystem::path& folder, const std::string& path);
  /// Takes the name off; requests that run go on. Returns false where no adapter has it.
  bool unload(const std::string& name);
  /// Returns the adapter of this name; nullptr: none has it.
  Adapter find(const std::string& name) const;
  /// Returns the adapters in the order in which they were loaded.
  std::vector<Adapter> all() const;
  /// Returns the names of adapters that requests have, of unloaded ones too.
  std::vector<std::string> in_use() const;
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }

 private:
  void check_memory(const std::string& name, const checkpoint::AdapterFolder&) const;
  Adapter take_slot(const std::string& name, const std::string& path, bool saves);
  engine::Engine& engine_;
  const policy::Model& model_;
  const policy::AdapterTargets targets_;
  const policy::SavedTargets saved_targets_;
  const AdapterMemory memory_;
  std::mutex loading_;        ///< one adapter is loaded at a time
  mutable std::mutex mutex_;  ///< guards all below
  std::vector<std::weak_ptr<const engine::Adapter>> slots_;
  std::vector<Adapter> served_;
  int64_t last_id_ = 0;
};

}  // namespace pm::server
