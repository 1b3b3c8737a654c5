// See input.h.
#include "worker/layers/input.h"

#include <ATen/ATen.h>

namespace pm::layers {

Table::Table(const policy::Param& table, Loader& loader) : table_(loader.load(table)), rows_(loader.range(table)), whole_(loader.cuts().ranks() == 1) {
  if (table_.size(0) == table.shape[0]) rows_ = {0, table.shape[0]}, whole_ = true;
}

at::Tensor Table::partial(const at::Tensor& rows) const {
  if (whole_) return at::index_select(table_, 0, rows).to(at::kFloat);
  const at::Tensor where = at::logical_and(rows >= rows_.begin, rows < rows_.end).nonzero().squeeze(1);
  at::Tensor x = at::zeros({rows.size(0), table_.size(1)}, at::kFloat);
  if (where.numel() > 0) x.index_copy_(0, where, at::index_select(table_, 0, at::index_select(rows, 0, where) - rows_.begin).to(at::kFloat));
  return x;
}

Input::Input(const policy::Stack& stack, Loader& loader) : scale_(stack.input.scale), position_offset_(stack.input.position_offset) {
  const policy::Input& input = stack.input;
  if (input.token) token_.emplace(*input.token, loader);
  if (input.positions) position_.emplace(*input.positions, loader);
  for (const policy::IndexTable& table : input.tables) types_.push_back({table.key(), Table(table.table, loader), table.given});
  if (input.projection) {
    const bool images = input.projection->weight.shape.size() == 4;
    if (images) patch_ = input.projection->weight.shape[2];
    (images ? patch_projection_ : projection_).emplace(*input.projection, loader);
  }
  std::vector<at::Tensor> extra;
  for (const auto& token : {input.class_token, input.distillation_token})
    if (token) extra.push_back(loader.load(*token).to(at::kFloat).reshape({1, 1, -1}));
  if (!extra.empty()) extra_tokens_ = at::cat(extra, 1);
  if (input.norm) norm_.emplace(*input.norm, loader);
}

/// [images, channels, height, width] -> [images x (extra tokens + patches), hidden]: a convolution whose stride is its kernel is a linear map.
at::Tensor Input::patches(const at::Tensor& pixels) const {
  const int64_t images = pixels.size(0), channels = pixels.size(1), down = pixels.size(2) / patch_, across = pixels.size(3) / patch_;
  const at::Tensor cut = pixels.reshape({images, channels, down, patch_, across, patch_}).permute({0, 2, 4, 1, 3, 5});
  at::Tensor x = (*patch_projection_)(cut.reshape({images * down * across, channels * patch_ * patch_})).reshape({images, down * across, -1});
  if (extra_tokens_.defined()) x = at::cat({extra_tokens_.expand({images, extra_tokens_.size(1), x.size(2)}), x}, 1);
  return x.flatten(0, 1);
}

at::Tensor Input::operator()(const Batch& batch, comm::Communicator& comm) const {
  at::Tensor x;
  if (token_) {
    x = token_->partial(batch.tokens);
    if (scale_ != 1) x.mul_(scale_);
  }
  if (position_) {
    const at::Tensor positions = position_->partial(position_offset_ == 0 ? batch.positions : batch.positions + position_offset_);
    x = x.defined() ? x.add_(positions) : positions;
  }
  if (comm.size() > 1 && x.defined()) {
    if (!token_ || !position_) x = x.contiguous();
    comm.all_reduce(x);
  }
  if (patch_projection_) {
    const at::Tensor seen = patches(batch.pixels);
    x = x.defined() ? x + seen : seen;
  }
  for (const auto& [key, table, given] : types_) {
    const at::Tensor& rows = batch.types.at(key);
    x = x + (given ? table.partial(rows.clamp_min(0)) * (rows >= 0).unsqueeze(1) : table.partial(rows));   // -1: nothing is added
  }
  if (norm_) x = (*norm_)(x);
  return projection_ ? (*projection_)(x) : x;
}

}  // namespace pm::layers
