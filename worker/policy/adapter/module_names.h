// SPDX-License-Identifier: Apache-2.0
// Finds modules of an adapter among those of the model, whose names may differ by a prefix, for checkpoints are saved
// from classes with and without heads.
#pragma once
#include <string>

#include "worker/base/error.h"
#include "worker/checkpoint/adapter_folder.h"

namespace pm::policy {

[[noreturn]] inline void refuse_adapter(const checkpoint::AdapterFolder& adapter, const std::string& what) {
  throw Error(Reason::ModelUnreadable,
              "adapter " + checkpoint::printable(adapter.folder().string()) + ": " + checkpoint::printable(what));
}

/// Returns whether the name is `end`, or ends in it as a path.
inline bool ends_in(const std::string& name, const std::string& end) {
  return name == end || name.ends_with("." + end);
}

/// Returns the only one of `targets`, a map by names of modules, that the module's name or its end names. Throws
/// Error{ModelUnreadable}: two are, or none is, which `unknown` says behind the module's name and before an example.
template <typename Targets>
typename Targets::const_iterator find_module(const Targets& targets, const checkpoint::AdapterFolder& adapter,
                                             const std::string& module, const std::string& unknown) {
  if (const auto exact = targets.find(module); exact != targets.end()) return exact;
  auto found = targets.end();
  for (auto it = targets.begin(); it != targets.end(); ++it) {
    if (!ends_in(module, it->first) && !ends_in(it->first, module)) continue;
    if (found != targets.end())
      refuse_adapter(adapter,
                     "module " + module + " may be " + found->first + " or " + it->first + " of the base model");
    found = it;
  }
  if (found == targets.end())
    refuse_adapter(adapter,
                   "module " + module + unknown + ", such as " + (targets.empty() ? "none" : targets.begin()->first));
  return found;
}

}  // namespace pm::policy
