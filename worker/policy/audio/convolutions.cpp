// SPDX-License-Identifier: Apache-2.0
// Builder: convolutions over audio, and the one that embeds positions.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

constexpr int64_t most_convolutions = 64;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

}  // namespace

int64_t Builder::small_size(const Node& section, std::string_view key, const Scope& scope, bool may_be_zero) {
  const Node* node = section.get(key);
  if (!node) refuse_policy(section, "the section needs \"" + std::string(key) + "\"");
  const int64_t value = evaluate_int(*node, scope.variables);
  if (value < (may_be_zero ? 0 : 1) || value > int64_t{1} << 20)
    unreadable(*node, std::string(key) + " is " + std::to_string(value) + " with this config.json, expected " +
                          (may_be_zero ? "0" : "1") + " to 2^20");
  return value;
}

std::optional<Convolutions> Builder::convolutions(const Context& context, const Node& section, const Scope& scope,
                                                  const std::string& path) {
  const Node* node = section.get("convolutions");
  if (!node) return std::nullopt;
  const Node *input = node->get("input"), *features = node->get("features");
  if (!input || !node->get("kernel")) refuse_policy(*node, "convolutions need \"input\" and \"kernel\"");
  Convolutions convolutions{.input = input->text, .features = features ? features->text : "", .layers = {}};
  if (node->get("bins")) convolutions.bins = small_size(*node, "bins", scope);
  if (const Node* first = node->get("bins_first")) convolutions.bins_first = evaluate_bool(*first, scope.variables);
  if (node->get("exact_length")) convolutions.exact_length = small_size(*node, "exact_length", scope);
  if (node->get("act")) convolutions.activation = activation(node->get("act"), scope.variables);
  if (const Node* gated = node->get("gated")) convolutions.gated = evaluate_bool(*gated, scope.variables);
  const Node* over_time = node->get("norm_over_time");
  const int64_t count = small_size(*node, "layers", scope);
  if (count > most_convolutions)
    unreadable(*node, "config.json gives " + std::to_string(count) + " convolutions, expected 1 to " +
                          std::to_string(most_convolutions));
  int64_t in = std::max<int64_t>(1, convolutions.bins);
  for (int64_t layer = 0; layer < count; ++layer) {
    Scope own = scope;
    own.variables.layer = layer;
    if (const Node* at = node->get("at")) binder_.enter(*at, own);
    const std::string name = path + "." + std::to_string(layer);
    const int64_t out = small_size(*node, "channels", own), taps = small_size(*node, "size", own);
    Convolution convolution;
    convolution.stride = node->get("stride") ? small_size(*node, "stride", own) : 1;
    convolution.padding = node->get("padding") ? small_size(*node, "padding", own, true) : 0;
    if (convolution.padding > 0 && taps != 2 * convolution.padding + 1)
      unreadable(*node, "a kernel of " + std::to_string(taps) + " taps with a padding of " +
                            std::to_string(convolution.padding) +
                            ", expected an odd number of taps and half of it, or no padding");
    if (convolutions.gated && out % 2)
      unreadable(*node, "a gated convolution has " + std::to_string(out) + " channels, expected an even number");
    const ParamRequest request{.role = Role::ConvolutionWeight, .path = name, .shape = {out, in, taps}};
    if (auto made =
            linear(context, node->get("kernel"), nullptr, own, request, Role::ConvolutionBias, /*outside=*/true))
      convolution.kernel = std::move(*made);
    convolution.norm = norm(context, node, own, name + ".norm", out);
    convolution.norm_over_time = over_time && evaluate_bool(*over_time, own.variables);
    convolutions.layers.push_back(std::move(convolution));
    in = convolutions.gated ? out / 2 : out;
  }
  if (in != context.sizes.embedding)
    unreadable(*node, "the last convolution gives " + std::to_string(in) + " channels, the embedding has " +
                          std::to_string(context.sizes.embedding));
  if (convolutions.exact_length > 0 && convolutions.frames(convolutions.exact_length) == 0)
    unreadable(*node, "exact_length is " + std::to_string(convolutions.exact_length) +
                          ", of which the convolutions make no frame");
  return convolutions;
}

std::optional<BatchNorm> Builder::batch_norm(const Node& section, const Scope& scope, const std::string& path,
                                             int64_t width) {
  const std::optional<Binding> row = binder_.binding(section.get("batch_norm"), scope.variables);
  if (!row || !row->names()) return std::nullopt;
  BatchNorm norm;
  if (const Node* eps = row->option("eps")) norm.eps = evaluate_number(*eps, scope.variables);
  for (auto [suffix, role, param] : {std::tuple{".running_mean", Role::RunningMean, &norm.mean},
                                     {".running_var", Role::RunningVariance, &norm.variance},
                                     {".weight", Role::NormWeight, &norm.weight},
                                     {".bias", Role::NormBias, &norm.bias}}) {
    const ParamRequest request{.role = role, .path = path + suffix, .shape = {width}};
    *param = binder_.bind(request, binder_.names(*row->names(), scope, suffix), *row, scope).value_or(Param{});
  }
  return norm;
}

std::optional<PositionalConvolution> Builder::positional_convolution(const Context& context, const Node& position,
                                                                     const Scope& scope, const std::string& path) {
  const Node* node = position.get("convolution");
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  PositionalConvolution convolution;
  const int64_t hidden = context.sizes.hidden, taps = small_size(*node, "size", scope);
  convolution.groups = small_size(*node, "groups", scope);
  if (hidden % convolution.groups)
    unreadable(*node, "config.json gives " + std::to_string(convolution.groups) + " groups of " +
                          std::to_string(hidden) + " channels, expected a divisor");
  if (const Node* act = node->get("act")) convolution.activation = activation(act, scope.variables);
  const ParamRequest request{
      .role = Role::ConvolutionWeight, .path = path, .shape = {hidden, hidden / convolution.groups, taps}};
  if (auto made = linear(context, node, nullptr, scope, request, Role::ConvolutionBias, /*outside=*/true))
    convolution.kernel = std::move(*made);
  if (const std::optional<Binding> row = binder_.binding(node->get("gain"), scope.variables); row && row->names()) {
    const ParamRequest gain{.role = Role::ConvolutionGain, .path = path + ".gain", .shape = {taps}};
    convolution.gain = binder_.bind(gain, binder_.names(*row->names(), scope, ".weight"), *row, scope);
  }
  convolution.batch_norm = batch_norm(*node, scope, path + ".batch_norm", hidden);
  convolution.norm = norm(context, node, scope, path + ".norm", hidden);
  return convolution;
}

std::optional<ConvolutionBranch> Builder::convolution_branch(const Context& context, const Scope& layer,
                                                             const std::string& path) {
  const Node* node = context.layer ? context.layer->get("convolution_branch") : nullptr;
  if (!binder_.binding(node, layer.variables)) return std::nullopt;
  Scope scope = layer;
  scope.layer = static_cast<int>(layer.variables.layer.value_or(0));
  ConvolutionBranch branch;
  const int64_t hidden = context.sizes.hidden, taps = small_size(*node, "size", scope);
  if (node->get("groups")) branch.groups = small_size(*node, "groups", scope);
  if (hidden % branch.groups)
    unreadable(*node, "config.json gives " + std::to_string(branch.groups) + " groups of " + std::to_string(hidden) +
                          " channels, expected a divisor");
  if (taps % 2 == 0)
    unreadable(*node, "config.json gives a convolution of " + std::to_string(taps) +
                          " taps beside a layer, expected an odd number: it keeps the length");
  if (const Node* act = node->get("act")) branch.activation = activation(act, scope.variables);
  // ranks share whole groups, or the outputs of the only one
  const ParamRequest request{.role = Role::BranchWeight,
                             .path = path,
                             .shape = {hidden, hidden / branch.groups, taps},
                             .units = branch.groups > 1 ? branch.groups : hidden};
  if (auto made = linear(context, node, nullptr, scope, request, Role::BranchBias, /*outside=*/true))
    branch.kernel = std::move(*made);
  branch.norm = norm(context, node, scope, path + ".norm", hidden);
  return branch;
}

}  // namespace pm::policy
