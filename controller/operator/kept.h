// What the stores keep of each kind of object, which is what a pass reads, and how it is found.
#pragma once
#include "controller/operator/names.h"
#include "controller/runtime/store.h"

namespace pm::op {

/// Names of indexes, and the value that an object has which belongs to one of two.
namespace index {
inline const std::string node = "node";               ///< of pods: where it was bound to
inline const std::string devices = "devices";         ///< of pods: yes while it holds devices of a node
inline const std::string waits = "waits";             ///< of ParallelModels: yes while it has no plan, or pods without a node
inline const std::string yes = "yes";
}  // namespace index

/// For the stores of ParallelModels and of the kinds that they own: packed, because a pass looks at one model of many; and for nodes, which every pass looks at: whole.
/// Throws std::logic_error for another kind.
k8s::StoreOptions kept_of(const k8s::Resource&);

}  // namespace pm::op
