// The weights of a model that no rank holds whole: how they lie in runs and tables (planner/spread.h), what this rank keeps of each, and the units in which they
// come together. A unit is a run; where a run does not fit a buffer one of its matrices; where that does not fit either some rows of it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/layers/loader.h"

namespace pm::parallel {

/// A weight of a layer: parameters below each other.
struct Kept {
  std::vector<const policy::Param*> params;
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;  ///< kChar: int8, each row with its scales behind its numbers
  int64_t group = 0;               ///< of int8: inputs that share a scale
  int64_t row_bytes = 0, bytes = 0;
  size_t run = 0;
  int64_t offset = 0;              ///< in the run
  std::vector<int> units;          ///< that hold it, in order of rows
};

/// Bytes that this rank keeps a part of: a layer's, or a table's.
struct KeptRun {
  bool table = false;
  std::vector<int> weights;        ///< the widest types first, so that each lies at a multiple of its elements' size
  int64_t bytes = 0;
  Range part;                      ///< of a table rows, else bytes
  at::Tensor kept;                 ///< uint8, on the device or in the host's memory (Residency::HostMemory); undefined where weights stay in files
};

/// Bytes [begin, end) of a run, which fit a buffer.
struct KeptUnit { size_t run = 0; int64_t begin = 0, end = 0; };

/// One thing that ranks do together in a pass: bring a unit together, or look up rows of a table.
struct Stop {
  bool look_up = false;
  int number = 0;                  ///< of the unit, or of the weight
  bool operator==(const Stop&) const = default;
};

/// What a pass runs through, as bits: stack i of the model, then the head's best ids, then its scores.
using Places = uint64_t;

class Units final : public layers::Keeper {
 public:
  Units(const policy::Model&, const Plan&, int rank);
  std::optional<layers::Weight> keep(std::span<const policy::Param* const>, layers::Access) override;
  /// Who brings together what keep() gives handles to.
  void gather_with(layers::Gatherer& gatherer) { gatherer_ = &gatherer; }
  /// Once all layers have asked: makes runs and units, and reads this rank's parts (Residency::Device and HostMemory). Throws std::logic_error when a row does not fit a buffer.
  void load(layers::Loader&);

  Places of_stack(size_t stack) const { return Places{1} << stack; }
  Places best() const { return Places{1} << stacks_; }
  Places scores() const { return Places{1} << (stacks_ + 1); }
  /// The stops of a pass through these places, in the order in which layers use them.
  std::vector<Stop> route(Places) const;

  const Kept& weight(int number) const { return weights_[static_cast<size_t>(number)]; }
  const KeptRun& run(size_t number) const { return runs_[number]; }
  const KeptUnit& unit(int number) const { return units_[static_cast<size_t>(number)]; }
  bool in_files() const { return gathering_.from == Residency::File; }
  /// The part of a table that this rank keeps: bytes [rows, row_bytes].
  at::Tensor kept_rows(int weight) const;
  /// What bytes of whole rows of a weight are, uint8 of any shape: the same memory.
  layers::Weight rows_of(int weight, const at::Tensor& bytes) const;
  /// Reads rows of a weight from the checkpoint, as they lie in its run.
  void read_rows(layers::Loader&, int weight, Range rows, std::byte* out) const;
  /// Bytes of the unit that rank r has ready: what it keeps, or its part of what is to be read. From the unit's begin.
  Range part_of(int unit, int rank) const;
  /// Reads bytes [begin, end) of a run from the checkpoint, as layers want them.
  void read(layers::Loader&, size_t run, int64_t begin, int64_t end, std::byte* out) const;

 private:
  struct Use { int weight; bool look_up; };
  bool held_by_all(const policy::Param& owner) const;
  const policy::Param& owner(const policy::Param&) const;
  size_t run_of(const policy::Param& owner, const std::string& storage);
  void lay_out();
  void divide();
  void divide(int weight);
  at::Tensor part_in_memory(layers::Loader&, size_t run, int64_t begin, int64_t end) const;

  const Gathering gathering_;
  const DType compute_;                                      ///< what is no int8 matrix is held in
  const bool int8_;
  const int rank_, ranks_;
  layers::Gatherer* gatherer_ = nullptr;
  size_t stacks_;
  std::map<std::string, size_t> stack_numbers_;
  std::map<std::string, const policy::Param*> owners_;       ///< by path
  std::set<std::string> shared_;                             ///< paths of parameters that other layers read as well
  std::set<std::pair<std::string, int>> with_own_;           ///< layers that have cut parameters which no other layer reads
  std::vector<Kept> weights_;
  std::map<std::string, int> known_;                         ///< weights by their storage
  std::vector<KeptRun> runs_;
  std::map<std::string, size_t> run_numbers_;
  std::vector<KeptUnit> units_;
  std::vector<std::vector<Use>> uses_;                       ///< of each stack, then of the heads
};

}  // namespace pm::parallel
