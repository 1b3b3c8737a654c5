// Brings a rank's own bytes of a checkpoint into memory: never a whole tensor that the role table cuts, never more staging than 8 MiB; to another device by
// way of pinned buffers (worker/ops/staging.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/cuts.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/direct.h"
#include "worker/layers/weight.h"
#include "worker/ops/arena.h"
#include "worker/ops/staging.h"
#include "worker/policy/model.h"

namespace pm::layers {

/// The ATen type of a checkpoint type.
at::ScalarType scalar_type(DType);

/// Loads parameters for one rank. Not thread-safe; ranks load in parallel, each with its own loader.
class Loader {
 public:
  /// `precision`: what parameters without `keep` are held in. `progress` gets the bytes read so far, after each block.
  /// Tensors are made on `device`.
  Loader(const checkpoint::Checkpoint&, const Cuts&, int rank, DType precision, std::function<void(int64_t)> progress = {}, at::Device device = at::kCPU);

  int rank() const { return rank_; }
  at::Device device() const { return device_; }
  const Cuts& cuts() const { return cuts_; }
  /// The units of `param` that this rank holds.
  Range range(const policy::Param&) const;
  /// The local logical tensor of `param` in its resident layout; parameters that share storage get the same tensor.
  at::Tensor load(const policy::Param&);
  /// Several matrices (or biases) below each other in one tensor [sum of local rows, in], so that one GEMM serves all (q, k, v).
  /// The same parameters (or those that share their storage) give the same tensor.
  at::Tensor load_rows(std::span<const policy::Param* const>);
  /// As load_rows, for matrices, vectors and tables that a strategy may keep elsewhere: see keep_with().
  Weight weight(std::span<const policy::Param* const>, Access = Access::Product);
  Weight weight(const policy::Param& param, Access access = Access::Product);
  /// From here on `keeper` is asked for each weight. It has to outlive the loader.
  void keep_with(Keeper& keeper) { keeper_ = &keeper; }

  /// Reads rows (elements of vectors) of what load_rows() would give into `target`, of as many rows. Of parameters that no rank cuts: a rank alone.
  void read(std::span<const policy::Param* const>, Range rows, at::Tensor target);
  /// Likewise the rows of a matrix as int8, the scales of each behind its numbers (ops::int8_row_bytes).
  void read_int8(std::span<const policy::Param* const>, Range rows, std::byte* out);
  /// Whether these parameters are held as int8.
  bool as_int8(const policy::Param& first) const { return precision_ == DType::I8 && first.matrix && !first.keep; }
  /// Memory that counts as weights.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type) { return arena_.allocate(shape, type); }
  /// Brings bytes to a tensor of the device, as ops::Staging::put; on the processor `read` writes to it directly, which has to be row-major and of type `stored`.
  void put(const at::Tensor& target, at::ScalarType stored, const ops::Staging::Read& read);
  /// Nothing more is loaded to the device: waits for what is under way and gives the staging's memory back.
  void loaded();
  /// Reads past the page cache from here on, where the files allow it; nobody hears of progress any more.
  void go_on_past_cache();
  /// Bytes that the weights occupy.
  int64_t resident_bytes() const { return arena_.bytes(); }
  /// Bytes read from files.
  int64_t read_bytes() const { return read_bytes_; }

 private:
  std::vector<int64_t> shape(std::span<const policy::Param* const>) const;
  at::Tensor fresh_rows(std::span<const policy::Param* const>);
  /// The same parameters as int8, by blocks of rows; what is read of a block is as large as the staging.
  Weight int8_rows(std::span<const policy::Param* const>);
  void fill(const policy::Param&, std::span<const policy::Piece>, at::Tensor target);
  const checkpoint::Checkpoint& checkpoint_;
  std::optional<checkpoint::DirectFiles> past_cache_;
  Keeper* keeper_ = nullptr;
  const Cuts& cuts_;
  int rank_;
  DType precision_;
  std::function<void(int64_t)> progress_;
  at::Device device_;
  ops::Arena arena_;
  std::map<std::string, at::Tensor> loaded_;   ///< by the storages stacked in it
  std::map<std::string, Weight> quantised_;    ///< likewise
  std::vector<std::byte> staging_;              ///< the processor's
  std::unique_ptr<ops::Staging> to_device_;     ///< of a device that is not the processor
  int64_t read_bytes_ = 0;
};

}  // namespace pm::layers
