// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/adapter_pool.h"

#include <algorithm>
#include <utility>

#include "worker/base/error.h"

namespace pm::server {

AdapterPool::AdapterPool(engine::Engine& engine, const policy::Model& model, AdapterMemory memory)
    : engine_(engine),
      model_(model),
      targets_(policy::adapter_targets(model)),
      saved_targets_(policy::saved_targets(model)),
      memory_(std::move(memory)),
      slots_(static_cast<size_t>(memory_.slots)) {}

void AdapterPool::check_memory(const std::string& name, const checkpoint::AdapterFolder& adapter) const {
  if (adapter.rank() > memory_.rank)
    throw Error(Reason::ModelUnreadable, "adapter " + name + " has factors of rank " + std::to_string(adapter.rank()) +
                                             ", and memory is kept for rank " + std::to_string(memory_.rank) +
                                             "; raise --max-adapter-rank");
  for (const auto& [saved, module] : policy::bind_saved(model_, saved_targets_, adapter)) {
    if (memory_.saved.contains(saved)) continue;
    std::string kept;
    for (const std::string& one : memory_.saved) kept += (kept.empty() ? "" : ", ") + one;
    throw Error(Reason::ModelUnreadable,
                "adapter " + name + " has the whole module " + saved + ", and memory for whole modules is kept for " +
                    (kept.empty() ? "none" : kept) + "; start the server with such an adapter by --adapter");
  }
}

/// Adapters with whole modules have the first slots, others rather the last ones.
AdapterPool::Adapter AdapterPool::take_slot(const std::string& name, const std::string& path, bool saves) {
  const std::lock_guard lock(mutex_);
  const auto is_free = [&](int64_t slot) { return slots_[static_cast<size_t>(slot)].expired(); };
  const int64_t all = saves ? memory_.saving_slots : slots();
  int64_t slot = saves ? 0 : all - 1;
  while (slot >= 0 && slot < all && !is_free(slot)) slot += saves ? 1 : -1;
  if (slot < 0 || slot >= all) {
    int64_t taken = 0, served = 0;
    for (int64_t one = 0; one < all; ++one) {
      const Adapter adapter = slots_[static_cast<size_t>(one)].lock();
      taken += adapter != nullptr;
      served += std::find(served_.begin(), served_.end(), adapter) != served_.end();
    }
    throw Error(Reason::InvalidRequest, "all " + std::to_string(all) + " slots for adapters " +
                                            (saves ? "with whole modules " : "") + "are taken, by " +
                                            std::to_string(served) + " that are served and " +
                                            std::to_string(taken - served) + " that still answer requests; unload " +
                                            "one, or " + (saves ? "give more by --adapter" : "raise --max-adapters"));
  }
  const auto made =
      std::make_shared<const engine::Adapter>(engine::Adapter{name, path, static_cast<int32_t>(slot) + 1, ++last_id_});
  slots_[static_cast<size_t>(slot)] = made;
  return made;
}

AdapterPool::Adapter AdapterPool::load(const std::string& name, const std::filesystem::path& folder,
                                       const std::string& path) {
  const std::lock_guard one(loading_);
  if (find(name))
    throw Error(Reason::InvalidRequest,
                "adapter " + name + " is loaded already; unload it first, or take another name");
  const auto opened = checkpoint::AdapterFolder::open(folder);
  check_memory(name, opened);
  Arrays factors = policy::read_factors(model_, targets_, opened);
  const Adapter made = take_slot(name, path, !opened.saved().empty());
  engine_.load_adapter(made->slot, std::move(factors));
  policy::read_saved(model_, saved_targets_, opened,
                     [&](Arrays rows) { engine_.load_adapter(made->slot, std::move(rows)); });
  const std::lock_guard lock(mutex_);
  served_.push_back(made);
  return made;
}

bool AdapterPool::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(served_, [&](const Adapter& adapter) { return adapter->name == name; }) > 0;
}

AdapterPool::Adapter AdapterPool::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(served_.begin(), served_.end(), [&](const Adapter& adapter) { return adapter->name == name; });
  return found == served_.end() ? nullptr : *found;
}

std::vector<std::string> AdapterPool::in_use() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& slot : slots_) {
    const Adapter adapter = slot.lock();
    if (!adapter) continue;
    const bool served = std::find(served_.begin(), served_.end(), adapter) != served_.end();
    if (adapter.use_count() > (served ? 2 : 1)) names.push_back(adapter->name);  // this one, and that of served_
  }
  return names;
}

std::vector<AdapterPool::Adapter> AdapterPool::all() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

}  // namespace pm::server
