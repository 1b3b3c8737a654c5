// SPDX-License-Identifier: Apache-2.0
// Builder: heads that convolve, beside those that attend.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<SpanConvolution> Builder::span_convolution(const Context& context, const Node& section,
                                                         const Scope& scope, const std::string& path,
                                                         const Attention& a) {
  const Node* node = section.get("span_convolution");
  if (!node) return std::nullopt;
  for (const char* key : {"depthwise", "pointwise", "kernel", "values"})
    if (!node->get(key)) refuse_policy(*node, std::string("span_convolution needs \"") + key + "\"");
  SpanConvolution made;
  const int64_t hidden = context.sizes.hidden, columns = a.heads * a.head_dim,
                taps = made.size = small_size(*node, "size", scope);
  if (taps % 2 == 0)
    throw Error(Reason::ModelUnreadable, node->where() + ": config.json gives kernels of " + std::to_string(taps) +
                                             " taps, expected an odd number: they keep the length");
  const std::string own = path + ".span_convolution.";
  const std::optional<Binding> depthwise = binder_.binding(node->get("depthwise"), scope.variables);
  if (depthwise && depthwise->names()) {
    const ParamRequest request{.role = Role::ConvolutionWeight, .path = own + "depthwise", .shape = {hidden, 1, taps}};
    made.depthwise = binder_.bind(request, binder_.names(*depthwise->names(), scope, ".weight"), *depthwise, scope)
                         .value_or(Param{});
  }
  const auto row = [&](const char* key, Role role, Role bias_role, std::vector<int64_t> shape, Linear& target) {
    const ParamRequest request{.role = role, .path = own + key, .shape = std::move(shape), .units = a.heads};
    if (auto bound = linear(context, node->get(key), &section, scope, request, bias_role)) target = std::move(*bound);
  };
  row("pointwise", Role::QueryWeight, Role::QueryBias, {columns, hidden}, made.pointwise);
  row("kernel", Role::OutWeight, Role::OutBias, {a.heads * taps, columns}, made.kernel);
  row("values", Role::QueryWeight, Role::QueryBias, {columns, hidden}, made.values);
  return made;
}

}  // namespace pm::policy
