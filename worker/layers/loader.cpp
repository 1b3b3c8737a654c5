// See loader.h.
#include "worker/layers/loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "worker/base/error.h"

namespace pm::layers {

using policy::Param;
using policy::Piece;

namespace {

constexpr int64_t staging_bytes = int64_t{8} << 20;

/// Stored tensors are read as a matrix: [1, n] for vectors, [dim 0, rest] beyond two dimensions.
int64_t stored_columns(const Param& param) {
  const std::vector<int64_t> shape = policy::stored_shape(param);
  if (shape.size() < 2) return shape.empty() ? 1 : shape[0];
  return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::F32: return at::kFloat;
    case DType::F16: return at::kHalf;
    case DType::BF16: return at::kBFloat16;
    case DType::F64: return at::kDouble;
    case DType::I8: return at::kChar;
    case DType::U8: return at::kByte;
    case DType::Bool: return at::kBool;
    case DType::I16: return at::kShort;
    case DType::I32: return at::kInt;
    case DType::I64: return at::kLong;
  }
  return at::kFloat;
}

Loader::Loader(const checkpoint::Checkpoint& checkpoint, const Cuts& cuts, int rank, DType precision, std::function<void(int64_t)> progress)
    : checkpoint_(checkpoint), cuts_(cuts), rank_(rank), precision_(precision), progress_(std::move(progress)) {}

Range Loader::range(const Param& param) const { return policy::range_of(param, cuts_, rank_); }

at::Tensor Loader::load(const Param& param) {
  const Param* one[] = {&param};
  return load_rows(one);
}

at::Tensor Loader::load_rows(std::span<const Param* const> params) {
  std::string storage;   // layers that share their parameters (ALBERT) share what is stacked as well
  for (const Param* param : params) storage += (param->shares.empty() ? param->path : param->shares) + "\n";
  at::Tensor& whole = loaded_[storage];
  if (!whole.defined()) whole = fresh_rows(params);
  return whole;
}

at::Tensor Loader::fresh_rows(std::span<const Param* const> params) {
  const auto local = [&](const Param& param) {
    std::vector<int64_t> shape = policy::local_shape(param, range(param));
    return shape.empty() ? std::vector<int64_t>{1} : shape;   // a scalar is a vector of one
  };
  std::vector<int64_t> shape = local(*params[0]);
  for (const Param* next : params.subspan(1)) shape[0] += local(*next)[0];
  const DType type = params[0]->keep ? params[0]->dtype : precision_;
  at::Tensor whole = arena_.allocate(shape, scalar_type(type));
  int64_t row = 0;
  for (const Param* param : params) {
    const int64_t rows = local(*param)[0];
    fill(*param, whole.narrow(0, row, rows));
    row += rows;
  }
  return whole;
}

/// Copies the rank's pieces into `target`, block of rows by block of rows.
void Loader::fill(const Param& param, at::Tensor target) {
  if (target.numel() == 0) return;
  const checkpoint::TensorInfo& tensor = *param.tensor;
  const int64_t element = size_of(tensor.dtype), columns = stored_columns(param);
  const at::ScalarType stored = scalar_type(tensor.dtype);
  // the target as the stored matrix lies: [rows, columns], transposed for Conv1D storage
  at::Tensor view = target.dim() == 1 ? target.unsqueeze(0) : target.flatten(1);
  if (param.in_out) view = target.t();
  const std::vector<Piece> pieces = policy::pieces(param, range(param));
  const bool down = view.size(1) == columns;   // pieces lie below each other, else beside each other
  int64_t row0 = 0, col0 = 0;
  for (const Piece& piece : pieces) {
    const int64_t row_bytes = piece.cols * element, block = std::max<int64_t>(1, staging_bytes / std::max<int64_t>(1, row_bytes));
    for (int64_t row = 0; row < piece.rows; row += block) {
      const int64_t rows = std::min(block, piece.rows - row);
      const checkpoint::Strip strip{((piece.row + row) * columns + piece.col) * element, rows, row_bytes, columns * element};
      at::Tensor part = view.narrow(0, row0 + row, rows).narrow(1, col0, piece.cols);
      if (part.is_contiguous() && part.scalar_type() == stored) {
        checkpoint_.read(tensor, {&strip, 1}, {static_cast<std::byte*>(part.mutable_data_ptr()), static_cast<size_t>(rows * row_bytes)});
      } else {
        staging_.resize(static_cast<size_t>(std::max<int64_t>(rows * row_bytes, static_cast<int64_t>(staging_.size()))));
        checkpoint_.read(tensor, {&strip, 1}, {staging_.data(), static_cast<size_t>(rows * row_bytes)});
        part.copy_(at::from_blob(staging_.data(), {rows, piece.cols}, at::TensorOptions(stored)));
      }
      read_bytes_ += rows * row_bytes;
      if (progress_) progress_(read_bytes_);
    }
    (down ? row0 : col0) += down ? piece.rows : piece.cols;
  }
}

}  // namespace pm::layers
