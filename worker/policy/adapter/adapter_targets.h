// SPDX-License-Identifier: Apache-2.0
// The matrices of a model to which LoRA adapters may add, and which of them an adapter's modules are.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/checkpoint/adapter_folder.h"
#include "worker/policy/spec/model.h"

namespace pm::policy {

/// A matrix as the checkpoint stores it, with the parameters that lie in it (q, k and v of a fused one).
struct AdapterTarget {
  std::vector<const Param*> params;
  int64_t in = 0, out = 0;  ///< of the whole stored matrix, whichever way it is stored
};

/// The targets by the names of their modules: those of their tensors without ".weight".
using AdapterTargets = std::map<std::string, AdapterTarget>;

/// Returns the matrices that layers multiply by every row they read: projections of attention and of feed-forward
/// blocks. Experts, embeddings, convolutions and heads are not among them, nor blocks that compute in integers.
AdapterTargets adapter_targets(const Model&);

/// Returns the name of the module in the model for each of the adapter's. They may differ by a prefix, for checkpoints
/// are saved from classes with and without heads. Throws Error{ModelUnreadable} where a module is no target, or two
/// are the same, where shapes differ, or where the adapter's config names a module that it has no factors of.
std::map<std::string, std::string> bind_adapter(const Model&, const AdapterTargets&, const checkpoint::AdapterFolder&);

/// Reads the factors of an adapter whole: "MODULE.a" [rank, in] and "MODULE.b" [out, rank], where B has the scale and
/// MODULE is the model's name. Throws as bind_adapter() and AdapterFolder::read() do.
Arrays read_factors(const Model&, const AdapterTargets&, const checkpoint::AdapterFolder&);

/// Returns the most elements that one adapter of this rank takes: those of whole matrices.
int64_t adapter_elements(const AdapterTargets&, int64_t rank);

}  // namespace pm::policy
