// SPDX-License-Identifier: Apache-2.0
// Checks the tensors that are passed to communicators. A violation is a bug of the caller: std::invalid_argument.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace pm::comm {

void require_contiguous(const char* op, const at::Tensor& tensor);
/// Requires a contiguous F32 tensor, as all_reduce() does.
void require_float(const at::Tensor& tensor);
void require_peer(const char* op, int peer, int rank, int size);
/// Requires that the ranks first, ..., first + count - 1 exist in the group and include `rank`.
void require_part(int first, int count, int rank, int size);

/// Sizes of a gather: rows and bytes of each rank, and where they lie in the result.
struct GatherShape {
  GatherShape(const char* op, const at::Tensor& part, std::span<const int64_t> rows, int rank, int size);
  at::Tensor make_result(const at::Tensor& part) const;  ///< [sum of rows, ...], dtype and device of `part`
  /// Throws unless `result` has the shape, dtype and device that make_result() gives.
  void require_result(const char* op, const at::Tensor& part, const at::Tensor& result) const;
  int64_t bytes(int r) const { return rows[static_cast<size_t>(r)] * row_bytes; }
  int64_t offset(int r) const;
  int64_t total_bytes() const { return total_rows * row_bytes; }

  std::span<const int64_t> rows;
  int64_t row_bytes = 0, total_rows = 0;
};

}  // namespace pm::comm
