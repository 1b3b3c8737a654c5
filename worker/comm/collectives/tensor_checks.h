// What every communicator demands of the tensors it is given. A breach is a bug of the caller: std::invalid_argument.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace pm::comm {

void require_contiguous(const char* op, const at::Tensor& tensor);
/// all_reduce: contiguous fp32.
void require_float(const at::Tensor& tensor);
void require_peer(const char* op, int peer, int rank, int size);
/// The ranks first, ..., first + count - 1, `rank` among them.
void require_part(int first, int count, int rank, int size);

/// The result of a gather: sizes, and where each rank's bytes lie.
struct GatherShape {
  GatherShape(const char* op, const at::Tensor& part, std::span<const int64_t> rows, int rank, int size);
  at::Tensor make_result(const at::Tensor& part) const;   ///< [sum of rows, ...], dtype and device of part
  /// Throws unless `result` is like one that make_result() makes.
  void require_result(const char* op, const at::Tensor& part, const at::Tensor& result) const;
  int64_t bytes(int r) const { return rows[static_cast<size_t>(r)] * row_bytes; }
  int64_t offset(int r) const;
  int64_t total_bytes() const { return total_rows * row_bytes; }

  std::span<const int64_t> rows;
  int64_t row_bytes = 0, total_rows = 0;
};

}  // namespace pm::comm
