// SPDX-License-Identifier: Apache-2.0
// Declares which fields the stores retain of each kind of object, and their indexes.
#pragma once
#include "controller/operator/api/names.h"
#include "controller/runtime/store.h"

namespace pm::op {

/// The names of indexes, and the value of boolean ones.
namespace index {
inline const std::string node = "node";        ///< of pods: the node that they are bound to
inline const std::string devices = "devices";  ///< of pods: yes while it holds devices of a node
inline const std::string waits = "waits";      ///< of ParallelModels: yes while it has no plan, or pods without a node
inline const std::string routes = "routes";    ///< of ParallelModels: yes while it has canaries
inline const std::string yes = "yes";
}  // namespace index

/// Returns the options of a store. ParallelModels and their children are stored packed, because a reconcile reads one
/// model of many. Nodes are stored as trees, because every reconcile reads them. Throws std::logic_error for any other
/// kind.
k8s::StoreOptions store_options(const k8s::Resource&);

}  // namespace pm::op
