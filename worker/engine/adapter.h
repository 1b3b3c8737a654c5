// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter that the ranks have loaded, as requests name it.
#pragma once
#include <cstdint>
#include <string>

namespace pm::engine {

/// Requests hold it while they run; with the last of them, and the list of those that are served, its slot becomes
/// free. Immutable.
struct Adapter {
  std::string name;
  std::string path;  ///< of its folder, as the user gave it
  int32_t slot = 0;  ///< of the ranks' adapters, from 1 on
  int64_t id = 0;    ///< from 1 on, never used again: an adapter that is loaded again is another one
};

}  // namespace pm::engine
