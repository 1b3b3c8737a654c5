// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "worker/base/error.h"
#include "worker/layers/adapters/adapter_slots.h"
#include "worker/ops/device_memory.h"
#include "worker/ops/linear.h"
#include "worker/policy/roles.h"

#include "base/log.h"

namespace pm::layers {

using policy::Param;
using policy::TensorSlice;

namespace {

constexpr int64_t staging_bytes = int64_t{8} << 20;

/// Stored tensors are read as a matrix: [1, n] for vectors, [dim 0, rest] beyond two dimensions.
int64_t stored_columns(const Param& param) {
  const std::vector<int64_t> shape = policy::stored_shape(param);
  if (shape.size() < 2) return shape.empty() ? 1 : shape[0];
  return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

/// Returns how many fp32 rows of that many inputs the staging memory holds, at least one.
int64_t rows_of_a_block(int64_t in) { return std::max<int64_t>(1, staging_bytes / std::max<int64_t>(1, 4 * in)); }

[[noreturn]] void refuse_to_quantize(const Param& param) {
  throw Error(Reason::ModelUnreadable,
              "tensor " + param.tensor->name +
                  " has infinities or NaNs, which integers cannot hold; take precision F32, F16 or BF16");
}

}  // namespace

at::ScalarType scalar_type(DType type) {
  switch (type) {
    case DType::F32:
      return at::kFloat;
    case DType::F16:
      return at::kHalf;
    case DType::BF16:
      return at::kBFloat16;
    case DType::F64:
      return at::kDouble;
    case DType::I8:
      return at::kChar;
    case DType::I4:
    case DType::I8A8:
      break;
    case DType::U8:
      return at::kByte;
    case DType::Bool:
      return at::kBool;
    case DType::I16:
      return at::kShort;
    case DType::I32:
      return at::kInt;
    case DType::I64:
      return at::kLong;
  }
  throw std::logic_error("no tensor has the type " + std::string(name_of(type)));
}

ops::CodeLayout code_layout(const Param& param, int64_t in, DType precision) {
  if (policy::rounds_inputs(param, precision)) return {in, std::max<int64_t>(1, in), 8, 8};
  return {in, policy::scale_group(param), policy::code_bits(param, precision)};
}

Loader::Loader(const checkpoint::Checkpoint& checkpoint, const Partition& partition, int rank, DType precision,
               std::function<void(int64_t)> progress, at::Device device)
    : checkpoint_(checkpoint),
      partition_(partition),
      rank_(rank),
      precision_(precision),
      progress_(std::move(progress)),
      device_(device),
      arena_(device) {}

at::ScalarType Loader::activation_type() const {
  return ops::activation_type(device_.type(), scalar_type(partition_.compute_type()));
}

Range Loader::range(const Param& param) const { return policy::rank_range(param, partition_, rank_); }

at::Tensor Loader::load(const Param& param) {
  const Param* one[] = {&param};
  return load_rows(one);
}

namespace {

/// Layers that share their parameters (ALBERT) share what is stacked as well.
std::string storages_of(std::span<const Param* const> params) {
  std::string storages;
  for (const Param* param : params) storages += (param->shares.empty() ? param->path : param->shares) + "\n";
  return storages;
}

}  // namespace

at::Tensor Loader::load_rows(std::span<const Param* const> params) {
  at::Tensor& whole = loaded_[storages_of(params)];
  if (!whole.defined()) whole = fresh_rows(params);
  return whole;
}

Weight Loader::weight(std::span<const Param* const> params, Access access) {
  std::optional<Weight> sharded = sharder_ ? sharder_->keep(params, access) : std::nullopt;
  if (sharded) return *sharded;
  return policy::code_bits(*params[0], precision_) > 0 ? quantized_rows(params) : Weight(load_rows(params));
}

Weight Loader::weight(const Param& param, Access access) {
  const Param* one[] = {&param};
  return weight(one, access);
}

std::optional<Weight> Loader::sharded(const Param& param) {
  const Param* one[] = {&param};
  return sharder_ ? sharder_->keep(one, Access::Product) : std::nullopt;
}

std::shared_ptr<const AdapterSite> Loader::adapter_site(std::span<const Param* const> params) const {
  return adapters_ ? adapters_->site(params, *this) : nullptr;
}

std::shared_ptr<const SavedSite> Loader::saved_site(const Param& weight) const {
  return adapters_ ? adapters_->saved_site(weight, *this) : nullptr;
}

at::Tensor Loader::load_slice(const Param& param, const TensorSlice& slice) {
  const Param* one[] = {&param};
  at::Tensor& part = loaded_[storages_of(one) + std::to_string(slice.row) + "," + std::to_string(slice.col)];
  if (!part.defined()) {
    const std::vector<int64_t> shape =
        param.conv1d ? std::vector{slice.cols, slice.rows} : std::vector{slice.rows, slice.cols};
    part = arena_.allocate(shape, scalar_type(param.keep ? param.dtype : partition_.compute_type()));
    fill(param, {&slice, 1}, part);
  }
  return part;
}

at::Tensor Loader::largest_of_rows(const Param& param) const {
  if (param.fused != policy::Fused::None || param.conv1d || param.diagonal_blocks > 1)
    throw std::logic_error("rows of " + param.path + " are no rows of its tensor");
  const checkpoint::TensorInfo& tensor = *param.tensor;
  const int64_t rows = param.shape.at(0), columns = stored_columns(param), row_bytes = columns * size_of(tensor.dtype),
                block = std::max<int64_t>(1, staging_bytes / row_bytes);
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(rows, block) * row_bytes));
  const at::Tensor largest = at::empty({rows}, at::kFloat);
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t count = std::min(block, rows - first);
    const checkpoint::Strip strip{first * row_bytes, 1, count * row_bytes, count * row_bytes};
    checkpoint_.read(tensor, {&strip, 1}, {bytes.data(), static_cast<size_t>(count * row_bytes)});
    const at::Tensor held = at::from_blob(bytes.data(), {count, columns}, at::TensorOptions(scalar_type(tensor.dtype)));
    largest.narrow(0, first, count).copy_(held.to(at::kFloat).abs().amax(1));
  }
  return largest.to(device_);
}

namespace {

std::vector<int64_t> shape_of(const Param& param, Range range) {
  std::vector<int64_t> shape = policy::local_shape(param, range);
  return shape.empty() ? std::vector<int64_t>{1} : shape;  // a scalar is a vector of one
}

/// The stored matrix as it is, or a member's part of it, where parameters that lie in it one after the other are all of
/// it, as queries, keys and values of GPT-2 do.
std::optional<TensorSlice> all_of_one(std::span<const Param* const> params) {
  const std::vector<int64_t> stored = policy::stored_shape(*params[0]);
  if (params.size() < 2 || stored.size() != 2) return std::nullopt;
  int64_t rows = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const Param& param = *params[i];
    if (param.tensor != params[0]->tensor || param.fused != policy::Fused::Concat ||
        param.part != static_cast<int>(i) || param.conv1d != params[0]->conv1d || param.member != params[0]->member)
      return std::nullopt;
    rows += param.shape[0];
  }
  const int64_t own = policy::member_rows(*params[0]);
  if (rows != (params[0]->conv1d ? stored[1] : own)) return std::nullopt;
  return TensorSlice{params[0]->member * own, own, 0, stored[1]};
}

/// Returns the parts of slices, concatenated along the resident dimension 0, that make `rows` of it.
std::vector<TensorSlice> narrowed(std::span<const TensorSlice> pieces, bool along_columns, Range rows) {
  std::vector<TensorSlice> out;
  int64_t before = 0;
  for (TensorSlice piece : pieces) {
    int64_t &first = along_columns ? piece.col : piece.row, &count = along_columns ? piece.cols : piece.rows;
    const int64_t all = count, step = along_columns ? piece.col_step : piece.row_step,
                  begin = std::max(rows.begin, before), end = std::min(rows.end, before + all);
    first += (begin - before) * step;
    count = end - begin;
    if (end > begin) out.push_back(piece);
    before += all;
  }
  return out;
}

}  // namespace

std::vector<int64_t> Loader::shape(std::span<const Param* const> params) const {
  std::vector<int64_t> shape = shape_of(*params[0], range(*params[0]));
  for (const Param* next : params.subspan(1)) shape[0] += shape_of(*next, range(*next))[0];
  return shape;
}

at::Tensor Loader::fresh_rows(std::span<const Param* const> params) {
  at::Tensor whole =
      arena_.allocate(shape(params), scalar_type(params[0]->keep ? params[0]->dtype : partition_.compute_type()));
  if (partition_.ranks() == 1) {
    read(params, {0, whole.size(0)}, whole);
    return whole;
  }
  int64_t row = 0;
  for (const Param* param : params) {
    const int64_t rows = shape_of(*param, range(*param))[0];
    fill(*param, policy::tensor_slices(*param, range(*param)), whole.narrow(0, row, rows));
    row += rows;
  }
  return whole;
}

void Loader::read(std::span<const Param* const> params, Range rows, at::Tensor target) {
  if (partition_.ranks() != 1)
    throw std::logic_error("rows of " + params[0]->path + " are asked of a rank that shares it with " +
                           std::to_string(partition_.ranks() - 1) + " others");
  const auto along_columns = [](const Param& param) { return param.conv1d || policy::stored_shape(param).size() < 2; };
  if (const auto whole = all_of_one(params))
    return fill(*params[0], narrowed({&*whole, 1}, params[0]->conv1d, rows), target);
  int64_t before = 0, done = 0;
  for (const Param* param : params) {
    const int64_t all = shape_of(*param, range(*param))[0], begin = std::max(rows.begin, before),
                  end = std::min(rows.end, before + all);
    if (end > begin) {
      std::vector<TensorSlice> pieces = policy::tensor_slices(*param, range(*param));
      const Range some{begin - before, end - before};
      if (policy::is_block_diagonal_by_inputs(*param))
        for (TensorSlice& piece : pieces)
          (param->conv1d ? piece.col : piece.row) += some.begin,
              (param->conv1d ? piece.cols : piece.rows) = some.size();
      else if (end - begin < all)
        pieces = narrowed(pieces, along_columns(*param), some);
      fill(*param, pieces, target.narrow(0, done, end - begin));
      done += end - begin;
    }
    before += all;
  }
}

void Loader::read_quantized(std::span<const Param* const> params, Range rows, std::byte* out) {
  const ops::CodeLayout layout = code_layout(*params[0], shape(params)[1], precision_);
  const int64_t block = rows_of_a_block(layout.in);
  std::vector<uint16_t> scales(static_cast<size_t>(layout.groups()));
  for (int64_t first = rows.begin; first < rows.end && layout.in > 0; first += block) {
    const Range some{first, std::min(rows.end, first + block)};
    const at::Tensor tile = at::empty({some.size(), layout.in}, at::kFloat);
    read(params, some, tile);
    for (int64_t row = 0; row < some.size(); ++row) {
      if (!ops::quantize(tile.const_data_ptr<float>() + row * layout.in, 1, layout, out, scales.data()))
        refuse_to_quantize(*params[0]);
      out += layout.code_bytes();
      out = std::copy_n(reinterpret_cast<const std::byte*>(scales.data()), layout.groups() * scale_bytes, out);
    }
  }
}

void Loader::put(const at::Tensor& target, at::ScalarType stored, const ops::Staging::Read& read) {
  if (target.is_cpu()) return read({static_cast<std::byte*>(target.mutable_data_ptr()), target.nbytes()});
  if (!to_device_) to_device_ = std::make_unique<ops::Staging>(device_);
  to_device_->put(target, stored, read);
}

void Loader::loaded() {
  if (!to_device_) return;
  to_device_.reset();
  ops::release_unused(device_);
}

Weight Loader::quantized_rows(std::span<const Param* const> params) {
  Weight& whole = quantized_[storages_of(params)];
  if (whole.defined()) return whole;
  const std::vector<int64_t> shape = this->shape(params);
  const ops::CodeLayout layout = code_layout(*params[0], shape[1], precision_);
  const ops::QuantizedMatrix made{arena_.allocate({shape[0], layout.code_bytes()}, layout.code_type()),
                                  arena_.allocate({shape[0], layout.groups()}, at::kBFloat16), layout,
                                  scalar_type(partition_.compute_type())};
  const int64_t block = rows_of_a_block(layout.in);
  int64_t row = 0;  // of all parameters
  for (const Param* param : params) {
    const std::vector<TensorSlice> pieces = policy::tensor_slices(*param, range(*param));
    const bool cut_rows = policy::sharding_rule(param->role).dim != 1;  // else a piece has some inputs of all rows
    const int64_t rows = shape_of(*param, range(*param))[0];
    for (int64_t first = 0; first < rows && layout.in > 0; first += block) {
      const Range some{first, std::min(rows, first + block)};
      std::vector<TensorSlice> here = cut_rows ? narrowed(pieces, param->conv1d, some) : pieces;
      if (!cut_rows)
        for (TensorSlice& piece : here)
          (param->conv1d ? piece.col : piece.row) += some.begin,
              (param->conv1d ? piece.cols : piece.rows) = some.size();
      const at::Tensor tile = at::empty({some.size(), layout.in}, at::kFloat),
                       codes = at::empty({some.size(), layout.code_bytes()}, layout.code_type()),
                       scales = at::empty({some.size(), layout.groups()}, at::kBFloat16);
      fill(*param, here, tile);
      if (!ops::quantize(tile.const_data_ptr<float>(), some.size(), layout,
                         static_cast<std::byte*>(codes.mutable_data_ptr()),
                         static_cast<uint16_t*>(scales.mutable_data_ptr())))
        refuse_to_quantize(*param);
      const ops::QuantizedMatrix there = made.rows(row + first, some.size());
      there.codes.copy_(codes);
      there.scales.copy_(scales);
    }
    row += rows;
  }
  return whole = Weight(made);
}

void Loader::use_direct_io() {
  direct_files_.emplace(checkpoint_);
  progress_ = {};
  if (!direct_files_->refusal().empty())
    LOG(WARNING) << "weights are read through the page cache, for O_DIRECT is refused: " << direct_files_->refusal();
}

/// Copies slices of the stored tensor into `target`, block of rows by block of rows.
void Loader::fill(const Param& param, std::span<const TensorSlice> pieces, at::Tensor target) {
  if (target.numel() == 0) return;
  const checkpoint::TensorInfo& tensor = *param.tensor;
  const int64_t element = size_of(tensor.dtype), columns = stored_columns(param);
  const at::ScalarType stored = scalar_type(tensor.dtype);
  // the target as the stored matrix lies: [rows, columns], transposed for Conv1D storage
  at::Tensor view = target.dim() == 1 ? target.unsqueeze(0) : target.flatten(1);
  if (param.conv1d) view = target.t();
  const auto read_strip = [&](const checkpoint::Strip& strip, std::span<std::byte> out) {
    direct_files_ ? direct_files_->read(tensor, {&strip, 1}, out) : checkpoint_.read(tensor, {&strip, 1}, out);
  };
  std::vector<std::byte> between;  // rows with the columns that lie between those of a slice
  const auto read_rows = [&](const TensorSlice& piece, int64_t row, int64_t rows, std::span<std::byte> out) {
    const int64_t width = (piece.cols - 1) * piece.col_step + 1;
    const checkpoint::Strip strip{((piece.row + row * piece.row_step) * columns + piece.col) * element, rows,
                                  width * element, columns * element * piece.row_step};
    if (piece.col_step == 1) return read_strip(strip, out);
    between.resize(static_cast<size_t>(rows * width * element));
    read_strip(strip, between);
    at::from_blob(out.data(), {rows, piece.cols}, at::TensorOptions(stored))
        .copy_(at::from_blob(between.data(), {rows, piece.cols}, {width, piece.col_step}, at::TensorOptions(stored)));
  };
  // pieces lie below each other, else beside each other
  const bool by_inputs = policy::is_block_diagonal_by_inputs(param);
  const bool down = policy::is_transposed_in_blocks(param) ? by_inputs : view.size(1) == columns && !by_inputs;
  int64_t row0 = 0, col0 = 0;
  for (const TensorSlice& piece : pieces) {
    const int64_t row_bytes = piece.cols * element,
                  block = std::max<int64_t>(1, (view.is_cpu() ? staging_bytes : ops::Staging::buffer_bytes) /
                                                   std::max<int64_t>(1, row_bytes));
    for (int64_t row = 0; row < piece.rows; row += block) {
      const int64_t rows = std::min(block, piece.rows - row);
      at::Tensor part = view.narrow(0, row0 + row, rows).narrow(1, col0, piece.cols);
      if (!part.is_cpu()) {
        put(part, stored, [&](std::span<std::byte> out) { read_rows(piece, row, rows, out); });
      } else if (part.is_contiguous() && part.scalar_type() == stored) {
        read_rows(piece, row, rows,
                  {static_cast<std::byte*>(part.mutable_data_ptr()), static_cast<size_t>(rows * row_bytes)});
      } else {
        staging_.resize(
            static_cast<size_t>(std::max<int64_t>(rows * row_bytes, static_cast<int64_t>(staging_.size()))));
        read_rows(piece, row, rows, {staging_.data(), static_cast<size_t>(rows * row_bytes)});
        part.copy_(at::from_blob(staging_.data(), {rows, piece.cols}, at::TensorOptions(stored)));
      }
      read_bytes_ += rows * row_bytes;
      if (progress_) progress_(read_bytes_);
    }
    (down ? row0 : col0) += down ? piece.rows : piece.cols;
  }
}

}  // namespace pm::layers
