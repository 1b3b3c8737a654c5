// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/collectives/tensor_checks.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

namespace pm::comm {

void require_contiguous(const char* op, const at::Tensor& tensor) {
  if (!tensor.defined()) throw std::invalid_argument(std::string(op) + ": undefined tensor");
  if (!tensor.is_contiguous())
    throw std::invalid_argument(std::string(op) + ": tensor is not contiguous; call contiguous() first");
}

void require_float(const at::Tensor& tensor) {
  require_contiguous("all_reduce", tensor);
  if (tensor.scalar_type() != at::kFloat)
    throw std::invalid_argument(std::string("all_reduce: expected float32, found ") +
                                c10::toString(tensor.scalar_type()));
}

void require_peer(const char* op, int peer, int rank, int size) {
  if (peer < 0 || peer >= size || peer == rank)
    throw std::invalid_argument(std::string(op) + " on rank " + std::to_string(rank) + ": no such peer " +
                                std::to_string(peer) + " in a group of " + std::to_string(size));
}

void require_part(int first, int count, int rank, int size) {
  if (first >= 0 && count >= 1 && first + count <= size && rank >= first && rank < first + count) return;
  throw std::invalid_argument("split on rank " + std::to_string(rank) + ": " + std::to_string(count) + " ranks from " +
                              std::to_string(first) + " in a group of " + std::to_string(size) +
                              "; expected ranks of the group, this one among them");
}

GatherShape::GatherShape(const char* op, const at::Tensor& part, std::span<const int64_t> rows, int rank, int size)
    : rows(rows) {
  require_contiguous(op, part);
  const std::string where = std::string(op) + " on rank " + std::to_string(rank);
  if (static_cast<int>(rows.size()) != size)
    throw std::invalid_argument(where + ": rows for " + std::to_string(rows.size()) + " ranks, expected " +
                                std::to_string(size));
  if (part.dim() == 0) throw std::invalid_argument(where + ": a scalar has no rows");
  if (part.size(0) != rows[static_cast<size_t>(rank)])
    throw std::invalid_argument(where + ": part has " + std::to_string(part.size(0)) + " rows, expected " +
                                std::to_string(rows[static_cast<size_t>(rank)]));
  row_bytes = static_cast<int64_t>(part.element_size());
  for (int64_t d = 1; d < part.dim(); ++d) row_bytes *= part.size(d);
  for (const int64_t count : rows) total_rows += count;
}

at::Tensor GatherShape::make_result(const at::Tensor& part) const {
  auto sizes = part.sizes().vec();
  sizes[0] = total_rows;
  return at::empty(sizes, part.options());
}

void GatherShape::require_result(const char* op, const at::Tensor& part, const at::Tensor& result) const {
  require_contiguous(op, result);
  const bool like = result.dim() == part.dim() && result.scalar_type() == part.scalar_type() &&
                    result.device() == part.device() && result.size(0) == total_rows &&
                    static_cast<int64_t>(result.nbytes()) == total_bytes();
  if (!like)
    throw std::invalid_argument(std::string(op) + ": a result of " + std::to_string(result.nbytes()) +
                                " bytes, expected " + std::to_string(total_bytes()) + " of the parts' type");
}

int64_t GatherShape::offset(int r) const {
  int64_t before = 0;
  for (int i = 0; i < r; ++i) before += rows[static_cast<size_t>(i)];
  return before * row_bytes;
}

}  // namespace pm::comm
