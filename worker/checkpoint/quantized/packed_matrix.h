// SPDX-License-Identifier: Apache-2.0
// A dense tensor whose elements are decoded where they are read, by rectangles: ScaledCodes of quantised checkpoints,
// blocks of GGUF files.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// Reads strips of a tensor as it is stored, as Checkpoint::read and DirectFiles::read do.
using ReadStored = std::function<void(const TensorInfo&, std::span<const Strip>, std::span<std::byte>)>;

/// Rows [row, row + rows) and columns [col, col + cols) of a matrix.
struct Region {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
};

/// One matrix, or several behind each other. Immutable; decode() may be called from several threads.
struct PackedMatrix {
  virtual ~PackedMatrix() = default;
  /// The rows of one dense matrix, and its columns.
  virtual int64_t dense_rows() const = 0;
  virtual int64_t dense_columns() const = 0;
  /// Decodes a region of one dense matrix into `out`, row after row, as elements of `dtype`. Throws
  /// Error{ModelUnreadable} for what only the bytes show to be wrong.
  virtual void decode(int64_t matrix, const Region&, const ReadStored&, std::byte* out) const = 0;
  /// Returns whether the format stores [out, in], whatever the module's own order is. Then nothing says which order a
  /// matrix of Conv1D has.
  virtual bool is_of_linear() const = 0;

  DType dtype = DType::BF16;  ///< of the dense tensor: F32, F16 or BF16
};

/// Implements Checkpoint::read for a tensor that is `packed`: strips of its dense elements, back to back. Strips begin
/// and end at whole elements, else std::invalid_argument.
void read_packed(const TensorInfo& dense, std::span<const Strip>, std::span<std::byte> out, const ReadStored&);

}  // namespace pm::checkpoint
