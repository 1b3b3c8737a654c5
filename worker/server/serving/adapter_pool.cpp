// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/adapter_pool.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::server {

AdapterPool::AdapterPool(engine::Engine& engine, const policy::Model& model, int64_t slots, int64_t rank)
    : engine_(engine),
      model_(model),
      targets_(policy::adapter_targets(model)),
      rank_(rank),
      slots_(static_cast<size_t>(slots)) {}

AdapterPool::Adapter AdapterPool::load(const std::string& name, const std::filesystem::path& folder,
                                       const std::string& path) {
  const std::lock_guard one(loading_);
  if (find(name))
    throw Error(Reason::InvalidRequest,
                "adapter " + name + " is loaded already; unload it first, or take another name");
  const auto opened = checkpoint::AdapterFolder::open(folder);
  if (opened.rank() > rank_)
    throw Error(Reason::ModelUnreadable, "adapter " + name + " has factors of rank " + std::to_string(opened.rank()) +
                                             ", and memory is kept for rank " + std::to_string(rank_) +
                                             "; raise --max-adapter-rank");
  Arrays factors = policy::read_factors(model_, targets_, opened);
  Adapter made;
  {
    const std::lock_guard lock(mutex_);
    const auto free = std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot.expired(); });
    if (free == slots_.end())
      throw Error(Reason::InvalidRequest, "all " + std::to_string(slots_.size()) +
                                              " slots for adapters are taken, by " + std::to_string(served_.size()) +
                                              " that are served and " + std::to_string(slots_.size() - served_.size()) +
                                              " that still answer requests; unload one, or raise --max-adapters");
    made = std::make_shared<const engine::Adapter>(
        engine::Adapter{name, path, static_cast<int32_t>(free - slots_.begin()) + 1, ++last_id_});
    *free = made;
  }
  engine_.load_adapter(made->slot, std::move(factors));
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
