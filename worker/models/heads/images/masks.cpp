// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/images/masks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/layers/feed_forward/mlp.h"

namespace pm::models {

namespace {

/// The number of states whose maps are enlarged at once: a map of an image of 800 x 1333 pixels has 67,000 numbers for
/// each of its channels.
constexpr int64_t most_states = 8;

at::Tensor in_f32(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kFloat) : tensor; }

}  // namespace

MasksHead::Convolution::Convolution(const policy::Linear& linear, layers::Loader& loader)
    : kernel(loader.load(linear.weight)), bias(linear.bias ? loader.load(*linear.bias) : at::Tensor()) {}

MasksHead::Convolution::Convolution(const policy::MaskConvolution& convolution, layers::Loader& loader)
    : Convolution(convolution.kernel, loader) {
  if (convolution.norm.weight) scale = loader.load(*convolution.norm.weight);
  if (convolution.norm.bias) shift = loader.load(*convolution.norm.bias);
  eps = convolution.norm.eps;
}

at::Tensor MasksHead::Convolution::operator()(const at::Tensor& x, policy::Activation activation) const {
  const int64_t padding = kernel.size(2) / 2;
  const at::Tensor y = at::conv2d(x, in_f32(kernel), in_f32(bias), /*stride=*/{1, 1}, /*padding=*/{padding, padding});
  if (!scale.defined()) return y;
  return layers::activate(activation,
                          at::group_norm(y, std::min<int64_t>(8, y.size(1)), in_f32(scale), in_f32(shift), eps));
}

MasksHead::MasksHead(const policy::Model& model, const policy::Head& head, const policy::MasksSpec& masks,
                     layers::Loader& loader)
    : Head(model, head),
      cells_(masks.cells),
      heads_(masks.heads),
      activation_(masks.activation),
      query_(masks.query, loader),
      key_(masks.key, loader),
      output_(masks.output, loader) {
  for (const policy::MaskConvolution& convolution : masks.convolutions) convolutions_.emplace_back(convolution, loader);
  for (const policy::MasksSpec::Fusion& fusion : masks.fusions)
    fusions_.push_back({Convolution(fusion.adapter, loader), Convolution(fusion.refine, loader)});
}

/// Returns how each state [states, hidden] attends to the cells [rows, columns] of an image, by one softmax over all
/// heads and visible cells: [states, heads, rows, columns]. `memory` has the states of the visible cells.
at::Tensor MasksHead::attention(const at::Tensor& states, const at::Tensor& memory, const at::Tensor& cells) const {
  const int64_t count = states.size(0), width = states.size(1) / heads_;
  const at::Tensor q = query_(states).reshape({count, heads_, width}).transpose(0, 1),
                   k = key_(memory).reshape({memory.size(0), heads_, width}).permute({1, 2, 0});
  const at::Tensor scores = at::matmul(q * (1 / std::sqrt(static_cast<double>(width))), k).transpose(0, 1);
  const at::Tensor shares = at::softmax(scores.flatten(1), 1).reshape({count, heads_, memory.size(0)});
  at::Tensor whole = at::zeros({count, heads_, cells.numel()}, shares.options());
  whole.index_copy_(2, cells.flatten().nonzero().squeeze(1), shares);
  return whole.reshape({count, heads_, cells.size(0), cells.size(1)});
}

/// Returns masks [states, height, width] of attention [states, heads, rows, columns]; `maps` are those of one image, of
/// the first stage to the last but one, then the projected cells.
at::Tensor MasksHead::enlarged(const at::Tensor& attention, const std::vector<at::Tensor>& maps) const {
  const at::Tensor& cells = maps.back();
  at::Tensor x =
      at::cat({cells.expand({attention.size(0), cells.size(1), cells.size(2), cells.size(3)}), attention}, 1);
  for (const Convolution& convolution : convolutions_) x = convolution(x, activation_);
  for (size_t i = 0; i < fusions_.size(); ++i) {
    const at::Tensor other = fusions_[i].adapter(maps[maps.size() - 2 - i], activation_);
    x = at::upsample_nearest2d(x, std::vector<int64_t>{other.size(2), other.size(3)});
    x = fusions_[i].refine(other + x, activation_);
  }
  return output_(x, activation_).squeeze(1);
}

void MasksHead::run(std::span<RequestForward> requests) const {
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !needs_head(model_, head_, request)) continue;
    const StackInput &own = request.inputs.stack_inputs.at(head_.stack),
                     &source = request.inputs.stack_inputs.at(cells_);
    const at::Tensor &states = request.states.at(head_.stack), &memory = request.states.at(cells_),
                     &cells = source.batch.pictures.at(0).cells;
    std::vector<at::Tensor> images;
    for (size_t image = 0; image < own.batch.sequences.spans.size(); ++image) {
      const ops::SequenceSpan &queries = own.batch.sequences.spans[image], &keys = source.batch.sequences.spans[image];
      const auto number = static_cast<int64_t>(image);
      std::vector<at::Tensor> maps, masks;
      for (const at::Tensor& map : request.maps) maps.push_back(map.narrow(0, number, 1));
      const at::Tensor all = attention(states.narrow(0, queries.first, queries.tokens),
                                       memory.narrow(0, keys.first, keys.tokens), cells[number]);
      for (const at::Tensor& some : all.split(most_states)) masks.push_back(enlarged(some, maps));
      images.push_back(at::cat(masks));
    }
    request.put(head_.outputs[0], at::stack(images));
  }
}

}  // namespace pm::models
