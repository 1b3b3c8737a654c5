// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/adapter_options.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/checkpoint/adapter_folder.h"
#include "worker/layers/adapters/adapter_slots.h"
#include "worker/models/model.h"
#include "worker/policy/adapter/adapter_targets.h"
#include "worker/policy/adapter/saved_modules.h"

namespace pm::cli {

namespace {
/// Slots and ranks for adapters that come later, where no option says them.
constexpr int64_t default_adapters = 8, default_adapter_rank = 16;
}  // namespace

NamedAdapter named_adapter(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == text.npos || equals + 1 == text.size())
    throw Error(Reason::Usage,
                "--adapter \"" + text + "\" is not NAME=FOLDER; write e.g. --adapter sql=/models/sql-lora");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

layers::AdapterCapacity adapter_capacity(const policy::Model& model, const ModelOptions& options) {
  std::vector<std::string> folders = options.adapters;
  std::erase(folders, "");
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  const auto given = static_cast<int64_t>(folders.size());
  layers::AdapterCapacity capacity;
  capacity.slots = std::max(options.max_adapters, given);
  if (options.adapts_any_module && options.max_adapters == 0)
    capacity.slots = std::max(default_adapters, static_cast<int64_t>(options.adapters.size()));
  if (capacity.slots == 0) return {};
  const policy::AdapterTargets targets = policy::adapter_targets(model);
  const policy::SavedTargets saved_targets = policy::saved_targets(model);
  // a server loads a folder once for each of its names, a command once
  const bool by_name = options.max_adapters > 0 || options.adapts_any_module;
  for (const std::string& folder : folders) {
    const auto adapter = checkpoint::AdapterFolder::open(folder);
    for (const auto& [module, name] : policy::bind_adapter(model, targets, adapter)) capacity.modules.insert(name);
    for (const auto& [name, module] : policy::bind_saved(model, saved_targets, adapter)) capacity.saved.insert(name);
    if (!adapter.saved().empty())
      capacity.saving_slots += by_name ? std::count(options.adapters.begin(), options.adapters.end(), folder) : 1;
    capacity.rank = std::max(capacity.rank, adapter.rank());
    if (options.max_adapter_rank > 0 && adapter.rank() > options.max_adapter_rank)
      throw Error(Reason::Usage, "adapter " + folder + " has factors of rank " + std::to_string(adapter.rank()) +
                                     ", and --max-adapter-rank is " + std::to_string(options.max_adapter_rank) +
                                     "; raise it");
  }
  if (options.adapts_any_module) capacity.rank = std::max(capacity.rank, default_adapter_rank);
  if (options.max_adapter_rank > 0) capacity.rank = options.max_adapter_rank;
  if (options.adapts_any_module) capacity.modules.clear();
  return capacity;
}

server::AdapterMemory memory_of(const layers::AdapterCapacity& capacity) {
  return {
      .slots = capacity.slots, .rank = capacity.rank, .saving_slots = capacity.saving_slots, .saved = capacity.saved};
}

void check_takes_adapters(const policy::Model& model) {
  if (!model.generates() || (!model.recompute && !models::Model::source_stack(model))) return;
  throw Error(Reason::ModelUnreadable, model.architecture + " generates " +
                                           (model.recompute ? "without a KV cache" : "from an encoder") +
                                           ", and adapters of such models are not served; merge the adapter into its "
                                           "base model with PEFT's merge_and_unload()");
}

int64_t adapter_elements(const policy::Model& model, const layers::AdapterCapacity& capacity) {
  if (capacity.slots == 0) return 0;
  policy::AdapterTargets targets = policy::adapter_targets(model);
  if (!capacity.modules.empty())
    std::erase_if(targets, [&](const auto& one) { return !capacity.modules.contains(one.first); });
  int64_t saved = 0;
  for (const auto& [name, target] : policy::saved_targets(model))
    if (capacity.saved.contains(name)) saved += target.elements();
  return capacity.slots * policy::adapter_elements(targets, capacity.rank) + capacity.saving_slots * saved;
}

}  // namespace pm::cli
