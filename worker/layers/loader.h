// SPDX-License-Identifier: Apache-2.0
// Loads a rank's shard of a checkpoint into memory. It reads a whole tensor that is sharded for the range of integers
// only, and stages at most 8 MiB; other devices get their bytes through pinned buffers (worker/ops/staging.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/partition.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/direct_io.h"
#include "worker/layers/weight.h"
#include "worker/ops/arena.h"
#include "worker/ops/staging.h"
#include "worker/policy/tensor_slices.h"

namespace pm::layers {

class AdapterSite;
class AdapterSlots;
class SavedSite;

/// Returns the ATen type of a checkpoint type.
at::ScalarType scalar_type(DType);

/// Returns how rows of `in` inputs of a parameter that `precision` quantizes lie as codes.
ops::CodeLayout code_layout(const policy::Param&, int64_t in, DType precision);

/// Loads parameters for one rank. Not thread-safe; ranks load in parallel, each with its own loader.
class Loader {
 public:
  /// `precision` is the type of all parameters without `keep`. `progress` gets the number of bytes read so far, after
  /// each block. Tensors are made on `device`.
  Loader(const checkpoint::Checkpoint&, const Partition&, int rank, DType precision,
         std::function<void(int64_t)> progress = {}, at::Device device = at::kCPU);

  int rank() const { return rank_; }
  at::Device device() const { return device_; }
  const Partition& partition() const { return partition_; }
  /// Returns the type of activations between the model's products on the device (ops::activation_type).
  at::ScalarType activation_type() const;
  /// Returns the units of `param` that this rank holds.
  Range range(const policy::Param&) const;
  /// Loads the local logical tensor of `param` in its resident layout. Parameters that share storage get the same
  /// tensor.
  at::Tensor load(const policy::Param&);
  /// Loads several matrices (or biases) stacked into one tensor [sum of local rows, in], so that one GEMM serves all
  /// (q, k, v). The same parameters, or those that share their storage, give the same tensor.
  at::Tensor load_rows(std::span<const policy::Param* const>);
  /// Loads as load_rows does, for weights that a strategy may shard further; shard_with() registers it.
  Weight weight(std::span<const policy::Param* const>, Access = Access::Product);
  Weight weight(const policy::Param& param, Access access = Access::Product);
  /// Returns the handle of a weight that a strategy shards further, or nothing when the rank holds it.
  std::optional<Weight> sharded(const policy::Param&);
  /// Loads a slice of the stored tensor as a matrix of its own.
  at::Tensor load_slice(const policy::Param&, const policy::TensorSlice&);
  /// Returns the largest magnitude in each row of the whole matrix or table [rows] F32, whatever part of it this rank
  /// has. It is read in blocks and not kept. The tensor is stored as it is: neither fused nor transposed.
  at::Tensor largest_of_rows(const policy::Param&) const;
  /// Asks `sharder` for each weight from now on. It must outlive the loader.
  void shard_with(WeightSharder& sharder) { sharder_ = &sharder; }
  /// Gives linears a place in these adapters from now on. They must outlive the loader.
  void adapt_with(AdapterSlots& adapters) { adapters_ = &adapters; }
  /// Returns where adapters add to the product of these stacked matrices; nullptr: nowhere.
  std::shared_ptr<const AdapterSite> adapter_site(std::span<const policy::Param* const>) const;
  /// Returns where adapters replace the linear with this weight; nullptr: nowhere.
  std::shared_ptr<const SavedSite> saved_site(const policy::Param& weight) const;

  /// Reads rows (elements of vectors) of what load_rows() would return into `target`. The parameters must not be
  /// sharded over tensor-parallel ranks.
  void read(std::span<const policy::Param* const>, Range rows, at::Tensor target);
  /// Reads rows of a matrix as codes; the scales of each row follow its codes (ops::CodeLayout::row_bytes).
  void read_quantized(std::span<const policy::Param* const>, Range rows, std::byte* out);
  /// Allocates memory that counts as weights.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type) { return arena_.allocate(shape, type); }
  /// Writes bytes to a tensor of the device, as ops::Staging::put does. On the CPU `read` writes to it directly; the
  /// tensor must be row-major and of type `stored`.
  void put(const at::Tensor& target, at::ScalarType stored, const ops::Staging::Read& read);
  /// Ends loading to the device: waits for pending copies and frees the staging memory.
  void loaded();
  /// Uses direct I/O from now on where the file system allows it; progress is no longer reported.
  void use_direct_io();
  /// Returns the bytes that the weights occupy.
  int64_t resident_bytes() const { return arena_.bytes(); }
  /// Returns the bytes read from files.
  int64_t read_bytes() const { return read_bytes_; }

 private:
  std::vector<int64_t> shape(std::span<const policy::Param* const>) const;
  at::Tensor fresh_rows(std::span<const policy::Param* const>);
  /// Loads the parameters as codes by blocks of rows; a block is as large as the staging memory.
  Weight quantized_rows(std::span<const policy::Param* const>);
  void fill(const policy::Param&, std::span<const policy::TensorSlice>, at::Tensor target);
  const checkpoint::Checkpoint& checkpoint_;
  std::optional<checkpoint::DirectFiles> direct_files_;
  WeightSharder* sharder_ = nullptr;
  AdapterSlots* adapters_ = nullptr;
  const Partition& partition_;
  int rank_;
  DType precision_;
  std::function<void(int64_t)> progress_;
  at::Device device_;
  ops::Arena arena_;
  std::map<std::string, at::Tensor> loaded_;  ///< keyed by the stacked storages
  std::map<std::string, Weight> quantized_;   ///< likewise
  std::vector<std::byte> staging_;            ///< of the CPU
  std::unique_ptr<ops::Staging> to_device_;   ///< of other devices
  int64_t read_bytes_ = 0;
};

}  // namespace pm::layers
