// SPDX-License-Identifier: Apache-2.0
// A dense tensor that a quantised checkpoint stores as codes, scales and zero points. Its elements are decoded where
// they are read, by rectangles: the number of a code is reduced by the zero point and multiplied by the scale of its
// block.
#pragma once
#include <optional>

#include "worker/checkpoint/quantized/code_matrix.h"

namespace pm::checkpoint {

/// One matrix, or several behind each other. Immutable; decode() may be called from several threads.
struct ScaledCodes : PackedMatrix {
  CodeMatrix codes;
  ScaleMatrix scale;
  int64_t block_rows = 1, block_columns = 1;  ///< of the codes that share a scale
  std::optional<CodeMatrix> zero;             ///< a zero point for each scale
  /// Act-order: the group of scales of each row or column, I32 or I64, in place of its index / block.
  std::optional<TensorInfo> groups;
  bool groups_of_rows = false;
  std::optional<TensorInfo> global;  ///< F32 [1], applied to every scale
  bool divide_by_global = false;
  std::optional<TensorInfo> dense_shape;  ///< I64 [2]: rows and columns, as the checkpoint states them beside the codes
  bool transposed = false;                ///< the dense matrices are [codes.columns, codes.rows]
  int64_t matrices = 1;
  std::optional<DType> rounded;  ///< the type of 16 bits to which products are rounded before `dtype`

  int64_t dense_rows() const override { return transposed ? codes.columns : codes.rows; }
  int64_t dense_columns() const override { return transposed ? codes.rows : codes.columns; }
  /// Throws Error{ModelUnreadable} for groups that do not exist and for a stated shape that differs.
  void decode(int64_t matrix, const Region&, const ReadStored&, std::byte* out) const override;
  bool is_of_linear() const override { return true; }

 private:
  struct Tile;
  void check_shape(const ReadStored&) const;
  std::vector<int64_t> groups_at(int64_t first, int64_t count, const ReadStored&) const;
  void read_tile(int64_t matrix, const Region&, const ReadStored&, Tile&) const;
  void decode_tile(Tile&, std::byte* out, int64_t pitch) const;
  void decode_part(const Tile&, const Region& part, std::byte* out, int64_t pitch) const;
};

}  // namespace pm::checkpoint
