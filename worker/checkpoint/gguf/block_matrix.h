// SPDX-License-Identifier: Apache-2.0
// A matrix of a GGUF file as transformers' module has it: blocks are decoded, and what the conversion to GGUF did to
// the elements is undone.
#pragma once
#include "worker/checkpoint/gguf/block_types.h"
#include "worker/checkpoint/quantized/packed_matrix.h"

namespace pm::checkpoint {

/// Immutable; decode() may be called from several threads.
struct BlockMatrix : PackedMatrix {
  TensorInfo stored;  ///< U8, the bytes of the matrix
  const BlockType* type = nullptr;
  int64_t rows = 0, columns = 0;
  /// Rows of a head whose rotary halves are stored as pairs: row 2 i + h of a head is row h x head_rows / 2 + i of the
  /// module, h = 0 or 1. 0: rows are in order.
  int64_t head_rows = 0;
  float addend = 0;         ///< which is added to every element: -1 for norms that multiply by 1 + weight
  bool transposed = false;  ///< the module has [columns, rows]: Conv1D

  int64_t dense_rows() const override { return transposed ? columns : rows; }
  int64_t dense_columns() const override { return transposed ? rows : columns; }
  void decode(int64_t matrix, const Region&, const ReadStored&, std::byte* out) const override;
  bool is_of_linear() const override { return false; }

 private:
  void decode_in_order(const Region&, const ReadStored&, std::byte* out) const;
};

}  // namespace pm::checkpoint
