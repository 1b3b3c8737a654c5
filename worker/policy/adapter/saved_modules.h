// SPDX-License-Identifier: Apache-2.0
// The modules of a model that LoRA adapters may replace whole (PEFT's modules_to_save), and which of them an adapter's
// are.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "worker/base/array.h"
#include "worker/checkpoint/adapter_folder.h"
#include "worker/policy/spec/model.h"

namespace pm::policy {

/// A linear of a head, or a table of tokens, as the checkpoint stores it.
struct SavedTarget {
  const Param* weight = nullptr;  ///< [out, in]; of a table [rows, width]
  const Param* bias = nullptr;    ///< [out]; nullptr: none

  bool is_table() const { return weight->role == Role::TokenEmbedding; }
  /// Returns the numbers that one adapter's takes.
  int64_t elements() const;
};

/// The targets by the names of their modules: those of their tensors without ".weight", which a tied head would have.
using SavedTargets = std::map<std::string, SavedTarget>;

/// Returns the linears of heads of classes and of vocabularies, and tables of tokens that nothing but such a head reads
/// too.
SavedTargets saved_targets(const Model&);

/// Returns for each module of the model that the adapter replaces the name of the adapter's, which may differ by a
/// prefix. Throws Error{ModelUnreadable} where a module is no target, or two are the same, where shapes differ, where
/// only one of the two has a bias, and where modules_to_save names a module of the model that the adapter's file lacks.
std::map<std::string, std::string> bind_saved(const Model&, const SavedTargets&, const checkpoint::AdapterFolder&);

/// Reads the modules that an adapter saves, and gives them to `use` in blocks of at most 64 MiB: "MODULE.weight@ROW"
/// [rows, in] has the rows from ROW on, "MODULE.bias@0" [out] a bias, where MODULE is the model's name. Throws as
/// bind_saved() and AdapterFolder::read() do, and what `use` throws.
void read_saved(const Model&, const SavedTargets&, const checkpoint::AdapterFolder&,
                const std::function<void(Arrays)>& use);

}  // namespace pm::policy
