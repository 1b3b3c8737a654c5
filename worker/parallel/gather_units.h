// SPDX-License-Identifier: Apache-2.0
// Shards the weights of a model over ranks as FSDP (ZeRO-3) does: lays them out in flat parameters and tables
// (planner/weight_shards.h), holds the shard of this rank, and defines the gather units. A unit is a flat parameter;
// where that does not fit a buffer, one of its matrices; where that does not fit either, some rows of it.
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/layers/loader.h"
#include "worker/policy/spec/model.h"

namespace pm::parallel {

/// A weight of a layer: one or more parameters stacked along the rows.
struct ShardedWeight {
  std::vector<const policy::Param*> params;
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;      ///< of the elements, or of the codes
  std::optional<ops::CodeLayout> codes;  ///< the scales of each row follow its codes
  int64_t row_bytes = 0, bytes = 0;
  size_t flat_param = 0;
  int64_t offset = 0;      ///< byte offset in the flat parameter
  std::vector<int> units;  ///< gather units that hold it, in row order
};

/// A flat parameter: the bytes of all sharded weights of a layer, or of one table, of which each rank holds a shard.
struct FlatParam {
  bool table = false;
  std::vector<int> weights;  ///< widest dtypes first, so that each weight is aligned to its elements
  int64_t bytes = 0;
  Range shard_range;       ///< shard of this rank: rows of a table, else bytes
  at::Tensor local_shard;  ///< uint8, on the device or in host memory (Residency::HostMemory); undefined where weights
                           ///< stay in files
};

/// Bytes [begin, end) of a flat parameter, which fit a buffer.
struct GatherUnit {
  size_t flat_param = 0;
  int64_t begin = 0, end = 0;
};

/// One collective step of a forward pass: all-gather a unit, or look up rows of a table.
struct GatherOp {
  bool look_up = false;
  int number = 0;  ///< number of the unit, or of the weight
  bool operator==(const GatherOp&) const = default;
};

/// The parts of the model that a forward pass uses, as bits: stack i of the model, then the argmax of the head, then
/// its logits. The upper 16 bits count how often the logits are computed beyond once.
using StageMask = uint64_t;

constexpr int repeats_shift = 48;
/// Returns the stages that either pass uses, and the logits as often as the one that needs them most.
constexpr StageMask united(StageMask a, StageMask b) {
  constexpr StageMask stages = (StageMask{1} << repeats_shift) - 1;
  return ((a | b) & stages) | (std::max(a >> repeats_shift, b >> repeats_shift) << repeats_shift);
}

class GatherUnits final : public layers::WeightSharder {
 public:
  GatherUnits(const policy::Model&, const Plan&, int rank);
  std::optional<layers::Weight> keep(std::span<const policy::Param* const>, layers::Access) override;
  /// Sets the gatherer of the weights that keep() returns handles to.
  void gather_with(layers::WeightGatherer& gatherer) { gatherer_ = &gatherer; }
  /// Lays out flat parameters and units once all layers have asked for their weights, and reads the shards of this rank
  /// (Residency::Device and HostMemory). Throws std::logic_error when a row does not fit a buffer.
  void load(layers::Loader&);

  StageMask stack_mask(size_t stack) const { return StageMask{1} << stack; }
  StageMask argmax_mask() const { return StageMask{1} << stacks_; }
  /// Returns the mask of logits that are computed so many times, at most 65,536.
  StageMask logits_mask(int64_t times = 1) const;
  /// Returns the gather operations of a forward pass through these stages, in the order in which layers use them.
  std::vector<GatherOp> schedule(StageMask) const;

  const ShardedWeight& weight(int number) const { return weights_[static_cast<size_t>(number)]; }
  const FlatParam& flat_param(size_t number) const { return flat_params_[number]; }
  const GatherUnit& unit(int number) const { return units_[static_cast<size_t>(number)]; }
  bool in_files() const { return gathering_.from == Residency::File; }
  /// Returns the shard of a table that this rank holds: bytes [rows, row_bytes].
  at::Tensor local_rows(int weight) const;
  /// Views bytes of whole rows (uint8 of any shape) as a weight over the same memory.
  layers::Weight view_rows(int weight, const at::Tensor& bytes) const;
  /// Reads rows of a weight from the checkpoint, in the layout of its flat parameter.
  void read_rows(layers::Loader&, int weight, Range rows, std::byte* out) const;
  /// Returns the bytes of the unit, relative to its begin, that rank `rank` contributes: from its shard, or read from
  /// files.
  Range part_of(int unit, int rank) const;
  /// Reads bytes [begin, end) of a flat parameter from the checkpoint, in the layout that layers expect.
  void read(layers::Loader&, size_t flat_param, int64_t begin, int64_t end, std::byte* out) const;

 private:
  struct Use {
    int weight;
    bool look_up;
  };
  bool is_replicated(const policy::Param& owner) const;
  const policy::Param& owner(const policy::Param&) const;
  size_t flat_param_of(const policy::Param& owner, const std::string& storage);
  void lay_out();
  void split_into_units();
  void split_into_units(int weight);
  at::Tensor part_in_memory(layers::Loader&, size_t flat_param, int64_t begin, int64_t end) const;

  const Gathering gathering_;
  const DType precision_, compute_;  ///< the latter: dtype of everything that is not quantized
  const int rank_, ranks_;
  layers::WeightGatherer* gatherer_ = nullptr;
  size_t stacks_;
  std::map<std::string, size_t> stack_numbers_;
  std::map<std::string, const policy::Param*> owners_;  ///< by path
  std::set<std::string> shared_;                        ///< paths of parameters that other layers read too
  std::set<std::pair<std::string, int>> with_own_;  ///< layers that have sharded parameters which no other layer reads
  std::vector<ShardedWeight> weights_;
  std::map<std::string, int> known_;  ///< weight numbers by storage
  std::vector<FlatParam> flat_params_;
  std::map<std::string, size_t> flat_param_numbers_;
  std::vector<GatherUnit> units_;
  std::vector<std::vector<Use>> uses_;  ///< for each stack, then for the heads
};

}  // namespace pm::parallel
