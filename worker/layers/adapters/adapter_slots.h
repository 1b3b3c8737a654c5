// SPDX-License-Identifier: Apache-2.0
// LoRA adapters on one rank: memory for a number of them beside the weights, and what a step adds to the products of
// its rows (Hu et al. 2022, "LoRA"): y += scale * B (A x), where each row has the factors of its own adapter.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/array.h"
#include "worker/layers/adapters/adapter_rows.h"
#include "worker/layers/adapters/saved_site.h"
#include "worker/layers/loader.h"
#include "worker/ops/arena.h"
#include "worker/policy/adapter/adapter_targets.h"
#include "worker/policy/adapter/saved_modules.h"

namespace pm::layers {

/// The adapters for which every rank keeps memory.
struct AdapterCapacity {
  int64_t slots = 0;              ///< adapters that are loaded at once; 0: none
  int64_t rank = 0;               ///< the largest rank of their factors
  std::set<std::string> modules;  ///< of the model, which they may change; empty: all of policy::adapter_targets()
  int64_t saving_slots = 0;       ///< of the slots, the first ones: for adapters that have whole modules
  std::set<std::string> saved;    ///< of the model, which these may replace: some of policy::saved_targets()
};

/// Where adapters add to one product: a linear, or several that are stacked. Its factors are cut as the matrices of
/// these linears are: B by the rows of a column-parallel one, A by the columns of a row-parallel one, whose partial
/// results the same all-reduce adds.
class AdapterSite {
 public:
  AdapterSite(std::span<const policy::Param* const>, const policy::AdapterTargets&, const AdapterCapacity&,
              const Loader&, ops::Arena&, const AdapterRows&);
  /// Adds what the adapters of the step's rows make of x [rows, local in] to y [rows, local out].
  void add(const at::Tensor& x, const at::Tensor& y) const;
  /// Makes the slot empty.
  void clear(int32_t slot);
  /// Takes the factors [rank, in] and [out, rank] of a whole stored matrix, F32, if some of it lies here. The rank is
  /// at most the capacity's.
  void load(int32_t slot, const std::string& module, const at::Tensor& a, const at::Tensor& b);
  bool has(const std::string& module) const;

 private:
  struct Part {
    const policy::Param* param;
    std::string module;
    size_t input = 0;                ///< of the stored matrices that it is a part of
    int64_t first = 0, outputs = 0;  ///< columns of y
    Range range;                     ///< units of this rank
    at::Tensor b;                    ///< [outputs, slots, rank]
  };
  void add_slot(int32_t slot, const at::Tensor& x, const at::Tensor& y) const;
  void add_masked(const at::Tensor& x, const at::Tensor& y) const;
  const AdapterRows& rows_;
  int64_t slots_, rank_;
  std::vector<Part> parts_;
  std::vector<std::string> inputs_;  ///< modules whose A differ
  at::Tensor a_;                     ///< [slots, inputs, rank, local in]
  std::vector<bool> loaded_;         ///< by slot: its adapter changes this product
};

/// The adapters of one rank. Not thread-safe.
class AdapterSlots {
 public:
  AdapterSlots(const policy::Model&, const AdapterCapacity&, at::Device);
  AdapterSlots(const AdapterSlots&) = delete;
  AdapterSlots& operator=(const AdapterSlots&) = delete;

  /// Makes the site of stacked linears, with memory for all slots; nullptr where adapters change none of them. Linears
  /// that share their storage share the site.
  std::shared_ptr<const AdapterSite> site(std::span<const policy::Param* const>, const Loader&);
  /// Makes the site of a linear that adapters may replace, with memory for the saving slots; nullptr for others.
  std::shared_ptr<const SavedSite> saved_site(const policy::Param& weight, const Loader&);
  /// Throws std::logic_error unless every matrix of these layers of stacks that adapters may change has its site, and
  /// every module that they may replace, so that none is loaded in part.
  void check_sites(std::span<const std::pair<std::string, Range>> layers) const;
  /// Replaces the adapter of a slot by these factors: "MODULE.a" [rank, in] and "MODULE.b" [out, rank], the scale in B.
  /// None: the slot becomes empty. Modules of other stages are skipped. Arrays of policy::read_saved() replace nothing,
  /// but add to what the slot has. Throws std::logic_error for a slot or a rank beyond the capacity.
  void load(int32_t slot, const Arrays& factors);
  /// Says which adapter each row of the following products has: one slot for each row in order.
  void select(std::span<const int32_t> slot_of_row);
  /// Says that all rows of the following products have this one.
  void select_all(int32_t slot);
  /// Returns whether adapters may replace modules, of which heads read other rows than layers.
  bool replaces_modules() const { return capacity_.saving_slots > 0; }
  /// Returns the bytes of all slots.
  int64_t bytes() const { return arena_.bytes(); }

 private:
  void load_saved(int32_t slot, const std::string& name, const Array&);
  const policy::Model& model_;
  const AdapterCapacity capacity_;
  const policy::AdapterTargets targets_;
  const policy::SavedTargets saved_targets_;
  const at::Device device_;
  ops::Arena arena_;
  AdapterRows rows_;
  std::map<std::string, std::shared_ptr<AdapterSite>> sites_;      ///< by the stacked storages
  std::map<std::string, std::shared_ptr<SavedSite>> saved_sites_;  ///< by the modules
};

}  // namespace pm::layers
