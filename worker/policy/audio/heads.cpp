// SPDX-License-Identifier: Apache-2.0
// Builder: heads over the frames of audio.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

constexpr int64_t most_layers = 64;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

}  // namespace

TimeDelaySpec Builder::time_delay(HeadScope& at) {
  const Node& section = *at.section.get("time_delay");
  for (const char* key : {"linear", "vector", "classes"})
    if (!section.get(key)) refuse_policy(section, std::string("a time delay network needs \"") + key + "\"");
  TimeDelaySpec spec{.transform = transform(at), .layers = {}, .vector = {}, .classes = {}};
  const int64_t count = small_size(section, "layers", at.scope);
  if (count > most_layers)
    unreadable(section,
               "config.json gives " + std::to_string(count) + " layers, expected 1 to " + std::to_string(most_layers));
  int64_t in = at.width;
  for (int64_t layer = 0; layer < count; ++layer) {
    Scope own = at.scope;
    own.variables.layer = layer;
    if (const Node* node = section.get("at")) binder_.enter(*node, own);
    TimeDelayLayer made;
    made.taps = small_size(section, "size", own);
    made.dilation = section.get("dilation") ? small_size(section, "dilation", own) : 1;
    const int64_t out = small_size(section, "channels", own);
    const ParamRequest request{.role = Role::HeadDenseWeight,
                               .path = at.path + ".time_delay." + std::to_string(layer),
                               .shape = {out, made.taps * in}};
    if (auto bound = linear(at.context, section.get("linear"), nullptr, own, request, Role::HeadDenseBias, true))
      made.linear = std::move(*bound);
    spec.layers.push_back(std::move(made));
    in = out;
  }
  const ParamRequest vector{.role = Role::HeadDenseWeight, .path = at.path + ".vector", .shape = {-1, 2 * in}};
  if (auto bound = linear(at.context, section.get("vector"), nullptr, at.scope, vector, Role::HeadDenseBias, true))
    spec.vector = std::move(*bound);
  const bool known = !spec.vector.weight.shape.empty();
  const ParamRequest classes{
      .role = Role::ClassWeight, .path = at.path + ".classes", .shape = {-1, known ? spec.vector.weight.shape[0] : -1}};
  if (auto bound = linear(at.context, section.get("classes"), nullptr, at.scope, classes, Role::ClassBias, true))
    spec.classes = std::move(*bound);
  return spec;
}

CodebookSpec Builder::codebook(const HeadScope& at, int64_t channels) {
  const Node& section = *at.section.get("codebook");
  for (const char* key : {"states", "scores", "entries", "quantized"})
    if (!section.get(key)) refuse_policy(section, std::string("a codebook needs \"") + key + "\"");
  CodebookSpec spec{.states = {}, .scores = {}, .entries = {}, .quantized = {}};
  spec.groups = small_size(section, "groups", at.scope);
  const int64_t entries = spec.groups * small_size(section, "size", at.scope);
  const int64_t width = small_size(section, "width", at.scope);
  if (width % spec.groups)
    unreadable(section, "config.json gives vectors of " + std::to_string(width) + " numbers in " +
                            std::to_string(spec.groups) + " groups, expected a multiple");
  const auto row = [&](const char* key, Role role, Role bias_role, std::vector<int64_t> shape, Linear& target) {
    const ParamRequest request{.role = role, .path = at.path + "." + key, .shape = std::move(shape)};
    if (auto made = linear(at.context, section.get(key), nullptr, at.scope, request, bias_role, true))
      target = std::move(*made);
  };
  row("states", Role::HeadDenseWeight, Role::HeadDenseBias, {-1, at.width}, spec.states);
  row("scores", Role::ClassWeight, Role::ClassBias, {entries, channels}, spec.scores);
  row("quantized", Role::HeadDenseWeight, Role::HeadDenseBias, {-1, width}, spec.quantized);
  if (const std::optional<Binding> names = binder_.binding(section.get("entries"), at.scope.variables);
      names && names->names()) {
    const ParamRequest table{
        .role = Role::IndexTable, .path = at.path + ".entries", .shape = {entries, width / spec.groups}};
    spec.entries =
        binder_.bind(table, binder_.names(*names->names(), at.scope, ".weight"), *names, at.scope).value_or(Param{});
  }
  return spec;
}

}  // namespace pm::policy
