// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/fake_device/blas.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "tests/gpu/fake_device/memory.h"
#include "tests/gpu/fake_device/streams.h"

namespace pm::fake_device {

namespace {

using Handle = int;

struct Library {
  std::mutex mutex;  ///< guards the members below
  std::map<c10::DeviceIndex, std::vector<Handle>> unused_handles;
  Handle handles = 0;
  std::map<std::tuple<c10::DeviceIndex, Handle, c10::StreamId>, at::DataPtr> workspaces;
};

Library& library() {
  static auto* all = new Library;  // never destroyed: threads return their handles when they end
  return *all;
}

/// The handles of one thread.
class ThreadHandles {
 public:
  ThreadHandles() = default;
  ~ThreadHandles() {
    Library& all = library();
    const std::lock_guard lock(all.mutex);
    for (const auto& [device, handle] : handles_) all.unused_handles[device].push_back(handle);
  }
  ThreadHandles(const ThreadHandles&) = delete;
  ThreadHandles& operator=(const ThreadHandles&) = delete;

  Handle on(c10::DeviceIndex device) {
    if (const auto found = handles_.find(device); found != handles_.end()) return found->second;
    Library& all = library();
    const std::lock_guard lock(all.mutex);
    std::vector<Handle>& unused = all.unused_handles[device];
    if (unused.empty()) unused.push_back(all.handles++);
    const Handle handle = unused.back();
    unused.pop_back();
    return handles_[device] = handle;
  }

 private:
  std::map<c10::DeviceIndex, Handle> handles_;
};

}  // namespace

bool is_blas(const std::string& operation) {
  static const std::set<std::string> operations{"aten::mm",    "aten::addmm",   "aten::bmm", "aten::baddbmm",
                                                "aten::addmv", "aten::_int_mm", "aten::dot"};
  return operations.contains(operation);
}

void use_blas(at::Device device) {
  thread_local ThreadHandles handles;
  const std::tuple key(device.index(), handles.on(device.index()), Streams::instance().current(device).id());
  Library& all = library();
  {
    const std::lock_guard lock(all.mutex);
    if (all.workspaces.contains(key)) return;
  }
  at::DataPtr workspace = Memory::instance().allocate(blas_workspace_bytes);
  const std::lock_guard lock(all.mutex);
  all.workspaces.emplace(key, std::move(workspace));
}

size_t blas_workspaces(c10::DeviceIndex device) {
  Library& all = library();
  const std::lock_guard lock(all.mutex);
  return static_cast<size_t>(std::count_if(all.workspaces.begin(), all.workspaces.end(),
                                           [&](const auto& one) { return std::get<0>(one.first) == device; }));
}

}  // namespace pm::fake_device
