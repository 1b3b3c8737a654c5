// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/convolution/convolution.h"

#include <ATen/ATen.h>

#include <numbers>

#include "worker/layers/feed_forward/mlp.h"

namespace pm::layers {

namespace {

at::Tensor optionally(const std::optional<policy::Param>& param, Loader& loader) {
  return param ? loader.load(*param) : at::Tensor();
}

/// Returns the tensor in F32; undefined where it is undefined.
at::Tensor in_f32(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kFloat) : tensor; }

}  // namespace

at::Tensor fold_gain(const at::Tensor& kernel, const at::Tensor& gain) {
  const at::Tensor whole = kernel.to(at::kDouble);
  const at::Tensor norms = whole.square().sum(at::IntArrayRef{0, 1}, /*keepdim=*/true).sqrt();
  return (whole * (gain.to(at::kDouble) / norms)).to(at::kFloat);
}

Convolutions::Convolutions(const policy::Convolutions& convolutions, Loader& loader)
    : activation_(convolutions.activation), gated_(convolutions.gated), samples_(convolutions.bins == 0) {
  for (const policy::Convolution& convolution : convolutions.layers) {
    Layer layer{.weight = loader.load(convolution.kernel.weight),
                .bias = optionally(convolution.kernel.bias, loader),
                .stride = convolution.stride,
                .padding = convolution.padding,
                .norm = {},
                .time_weight = {},
                .time_bias = {},
                .eps = 0};
    if (convolution.norm && convolution.norm_over_time) {
      layer.time_weight = optionally(convolution.norm->weight, loader);
      layer.time_bias = optionally(convolution.norm->bias, loader);
      layer.eps = convolution.norm->eps;
    } else if (convolution.norm) {
      layer.norm.emplace(*convolution.norm, loader);
    }
    layers_.push_back(std::move(layer));
  }
}

/// [1, channels, frames] -> the same of the next layer.
at::Tensor Convolutions::run(const Layer& layer, const at::Tensor& x) const {
  at::Tensor y = at::conv1d(x, in_f32(layer.weight), in_f32(layer.bias), layer.stride, layer.padding);
  if (layer.time_weight.defined())
    y = at::group_norm(y, y.size(1), in_f32(layer.time_weight), in_f32(layer.time_bias), layer.eps);
  if (layer.norm) y = (*layer.norm)(y[0].t().contiguous()).t().unsqueeze(0);
  y = activate(activation_, y);
  return gated_ ? at::glu(y, 1) : y;
}

at::Tensor Convolutions::operator()(const at::Tensor& audio) const {
  std::vector<at::Tensor> rows;
  for (int64_t row = 0; row < audio.size(0); ++row) {
    at::Tensor x = samples_ ? audio.narrow(0, row, 1).unsqueeze(1) : audio.narrow(0, row, 1).transpose(1, 2);
    for (const Layer& layer : layers_) x = run(layer, x);
    rows.push_back(x.transpose(1, 2));
  }
  return at::cat(rows).contiguous();
}

PositionalConvolution::PositionalConvolution(const policy::PositionalConvolution& convolution, Loader& loader)
    : weight_(loader.load(convolution.kernel.weight)),
      bias_(optionally(convolution.kernel.bias, loader)),
      groups_(convolution.groups),
      activation_(convolution.activation) {
  // in place: the arena holds no second kernel. Folding twice changes nothing, if layers shared the tensor
  if (convolution.gain) weight_.copy_(fold_gain(weight_, loader.load(*convolution.gain)));
  if (const auto& norm = convolution.batch_norm) {
    mean_ = loader.load(norm->mean);
    variance_ = loader.load(norm->variance);
    scale_ = loader.load(norm->weight);
    shift_ = loader.load(norm->bias);
    eps_ = norm->eps;
  }
  if (convolution.norm) norm_.emplace(*convolution.norm, loader);
}

at::Tensor PositionalConvolution::operator()(const at::Tensor& x) const {
  at::Tensor y = x.transpose(1, 2);
  if (mean_.defined()) {
    const at::Tensor factor = in_f32(scale_) * (in_f32(variance_) + eps_).rsqrt();
    y = (y - in_f32(mean_).unsqueeze(1)) * factor.unsqueeze(1) + in_f32(shift_).unsqueeze(1);
  }
  y = at::conv1d(y, in_f32(weight_), in_f32(bias_), /*stride=*/1, /*padding=*/weight_.size(2) / 2, /*dilation=*/1,
                 groups_)
          .narrow(2, 0, x.size(1));
  const at::Tensor sum = x + activate(activation_, y).transpose(1, 2);
  return norm_ ? (*norm_)(sum.flatten(0, 1)).reshape(sum.sizes()) : sum;
}

ConvolutionBranch::ConvolutionBranch(const policy::ConvolutionBranch& branch, Loader& loader)
    : own_(loader.range(branch.kernel.weight)), groups_(branch.groups), activation_(branch.activation) {
  const policy::Param& kernel = branch.kernel.weight;
  if (branch.kernel.bias) bias_ = loader.weight(*branch.kernel.bias);
  weight_ = loader.weight(kernel);
  for (int rank = 0; rank < loader.partition().ranks(); ++rank)
    channels_.push_back(policy::local_shape(kernel, policy::rank_range(kernel, loader.partition(), rank)).front());
  if (branch.norm) norm_.emplace(*branch.norm, loader);
}

at::Tensor ConvolutionBranch::operator()(const at::Tensor& x, const at::Tensor& state, const Batch& batch,
                                         comm::Communicator& comm) const {
  const at::Tensor bias = in_f32(bias_.value()), weight = in_f32(weight_.value());
  const int64_t inputs = groups_ > 1 ? x.size(1) / groups_ * own_.size() : x.size(1);
  const at::Tensor read = groups_ > 1 ? x.narrow(1, x.size(1) / groups_ * own_.begin, inputs) : x;
  at::Tensor made = at::zeros({x.size(0), weight.size(0)}, x.options());
  for (size_t i = 0; i < batch.sequences.spans.size() && weight.size(0) > 0; ++i) {
    const ops::SequenceSpan& span = batch.sequences.spans[i];
    const at::Tensor own = read.narrow(0, span.first, span.tokens);
    at::Tensor columns, padded = own;
    if (i < batch.columns.size() && !batch.columns[i].columns.empty()) {
      const std::vector<int64_t>& places = batch.columns[i].columns;
      columns = (at::tensor(places, at::kLong) - places.front()).to(x.device());
      padded = at::zeros({places.back() - places.front() + 1, inputs}, x.options()).index_copy(0, columns, own);
    }
    const at::Tensor out = at::conv1d(padded.t().unsqueeze(0), weight, bias, /*stride=*/1,
                                      /*padding=*/weight.size(2) / 2, /*dilation=*/1, groups_ > 1 ? own_.size() : 1)[0]
                               .t();
    made.narrow(0, span.first, span.tokens).copy_(columns.defined() ? at::index_select(out, 0, columns) : out);
  }
  at::Tensor channels = activate(activation_, made);
  if (comm.size() > 1) channels = comm.all_gatherv(channels.t().contiguous(), channels_).t();
  const at::Tensor sum = (state + channels).contiguous();
  return norm_ ? (*norm_)(sum) : sum;
}

ImageConvolution::ImageConvolution(const policy::ImageConvolution& convolution, Loader& loader)
    : kernel_(loader.load(convolution.kernel)),
      mean_(loader.load(convolution.norm.mean)),
      variance_(loader.load(convolution.norm.variance)),
      scale_(loader.load(convolution.norm.weight)),
      shift_(loader.load(convolution.norm.bias)),
      eps_(convolution.norm.eps),
      stride_(convolution.stride),
      dilation_(convolution.dilation) {}

at::Tensor ImageConvolution::operator()(const at::Tensor& x) const {
  const int64_t padding = dilation_ * (kernel_.size(2) / 2);
  at::Tensor y = at::conv2d(x, kernel_.to(at::kFloat), /*bias=*/{}, /*stride=*/{stride_, stride_},
                            /*padding=*/{padding, padding}, /*dilation=*/{dilation_, dilation_});
  const at::Tensor factor = scale_.to(at::kFloat) * (variance_.to(at::kFloat) + eps_).rsqrt();
  const at::Tensor offset = shift_.to(at::kFloat) - mean_.to(at::kFloat) * factor;
  return y.mul_(factor.reshape({1, -1, 1, 1})).add_(offset.reshape({1, -1, 1, 1}));
}

Backbone::Backbone(const policy::Backbone& backbone, Loader& loader)
    : stem_(backbone.stem, loader), activation_(backbone.activation) {
  for (const std::vector<policy::ResidualBlock>& stage : backbone.stages) {
    std::vector<Block>& blocks = stages_.emplace_back();
    for (const policy::ResidualBlock& block : stage) {
      Block& made = blocks.emplace_back();
      for (const policy::ImageConvolution& convolution : block.convolutions)
        made.convolutions.emplace_back(convolution, loader);
      if (block.shortcut) made.shortcut.emplace(*block.shortcut, loader);
    }
  }
}

at::Tensor Backbone::run(const Block& block, const at::Tensor& x) const {
  at::Tensor y = x;
  for (size_t i = 0; i < block.convolutions.size(); ++i) {
    y = block.convolutions[i](y);
    if (i + 1 < block.convolutions.size()) y = at::relu_(y);
  }
  return activate(activation_, y.add_(block.shortcut ? (*block.shortcut)(x) : x));
}

std::vector<at::Tensor> Backbone::operator()(const at::Tensor& image) const {
  at::Tensor x = activate(activation_, stem_(image));
  x = at::max_pool2d(x, /*kernel_size=*/{3, 3}, /*stride=*/{2, 2}, /*padding=*/{1, 1});
  std::vector<at::Tensor> maps;
  for (const std::vector<Block>& stage : stages_) {
    for (const Block& block : stage) x = run(block, x);
    maps.push_back(x);
  }
  return maps;
}

at::Tensor sine_positions(const at::Tensor& cells, int64_t width) {
  constexpr double temperature = 10000, smallest = 1e-6;
  const int64_t half = width / 2;
  const at::Tensor seen = cells.to(at::kFloat),
                   order = at::arange(half, at::TensorOptions(at::kLong).device(cells.device())),
                   exponents = 2 * at::div(order, 2, "floor").to(at::kFloat) / static_cast<double>(half),
                   periods = at::pow(temperature, exponents);
  const auto encoded = [&](int64_t dimension) {
    const at::Tensor count = seen.cumsum(dimension);
    const at::Tensor all = count.narrow(dimension, count.size(dimension) - 1, 1);
    const at::Tensor angles = (count / (all + smallest) * (2 * std::numbers::pi)).unsqueeze(3) / periods;
    const auto every_other = [&](int64_t first) { return angles.slice(3, first, half, 2); };
    return at::stack({every_other(0).sin(), every_other(1).cos()}, 4).flatten(3);
  };
  return at::cat({encoded(1), encoded(2)}, 3);
}

}  // namespace pm::layers
