// SPDX-License-Identifier: Apache-2.0
// Builder: heads that detect objects in images, and the one that fills in pixels.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

constexpr int64_t most_layers = 64;
constexpr int64_t most_pixels = 1024;  // of the side of a square, and most channels

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

/// Returns the first dimension of a matrix or a kernel, or -1 where the checkpoint lacks it.
int64_t outputs_of(const Linear& linear) { return linear.weight.shape.empty() ? -1 : linear.weight.shape[0]; }

}  // namespace

BoxesSpec Builder::boxes(const HeadScope& at) {
  const Node& section = *at.section.get("boxes");
  if (!section.get("linear")) refuse_policy(section, "boxes need \"linear\"");
  const int64_t count = small_size(section, "layers", at.scope);
  if (count > most_layers)
    unreadable(section,
               "config.json gives " + std::to_string(count) + " layers, expected 1 to " + std::to_string(most_layers));
  BoxesSpec spec;
  for (int64_t layer = 0; layer < count; ++layer) {
    Scope own = at.scope;
    own.variables.layer = layer;
    const bool last = layer == count - 1;
    const ParamRequest request{.role = last ? Role::ClassWeight : Role::HeadDenseWeight,
                               .path = at.path + ".boxes." + std::to_string(layer),
                               .shape = {last ? 4 : at.width, at.width}};
    if (auto bound = linear(at.context, section.get("linear"), nullptr, own, request,
                            last ? Role::ClassBias : Role::HeadDenseBias, true))
      spec.layers.push_back(std::move(*bound));
  }
  return spec;
}

MaskConvolution Builder::mask_convolution(const HeadScope& at, const Node& row, const Scope& scope,
                                          const std::string& name, int64_t in, int64_t out) {
  MaskConvolution made;
  const ParamRequest request{.role = Role::ConvolutionWeight, .path = at.path + "." + name, .shape = {out, in, -1, -1}};
  if (auto bound = linear(at.context, &row, nullptr, scope, request, Role::ConvolutionBias, true))
    made.kernel = std::move(*bound);
  const std::vector<int64_t>& shape = made.kernel.weight.shape;
  if (shape.size() == 4 && (shape[2] != shape[3] || shape[2] % 2 == 0))
    unreadable(row, "\"" + made.kernel.weight.tensor->name + "\" has a kernel of " + std::to_string(shape[2]) + " x " +
                        std::to_string(shape[3]) + ", expected an odd square: it is padded by half of that");
  if (!row.get("norm")) return made;
  const int64_t channels = outputs_of(made.kernel);
  if (channels > 8 && channels % 8)
    unreadable(row, "a convolution of masks has " + std::to_string(channels) + " channels, expected a multiple of 8");
  made.norm = norm(at.context, &row, scope, at.path + "." + name + ".norm", channels).value_or(Norm{});
  return made;
}

MasksSpec Builder::masks(const HeadScope& at, const Stack* read) {
  const Node& section = *at.section.get("masks");
  for (const char* key : {"query", "key", "convolution", "fusion", "final"})
    if (!section.get(key)) refuse_policy(section, std::string("masks need \"") + key + "\"");
  const std::string cells =
      read && !read->layers.empty() && read->layers[0].cross ? read->layers[0].cross->source : std::string();
  const Stack* source = model_.stack(cells);
  if (!binder_.is_dry_run() && (!source || !source->input.backbone))
    refuse_architecture(model_, "has masks of states that do not attend to cells of images");
  MasksSpec spec;
  spec.cells = cells;
  spec.heads = small_size(section, "heads", at.scope);
  if (at.width % spec.heads)
    unreadable(section, "config.json gives " + std::to_string(spec.heads) + " heads of masks and a width of " +
                            std::to_string(at.width) + ", expected a divisor");
  if (section.get("act")) spec.activation = activation(section.get("act"), at.scope.variables);
  for (auto [key, target] : {std::pair{"query", &spec.query}, {"key", &spec.key}}) {
    const ParamRequest request{
        .role = Role::HeadDenseWeight, .path = at.path + "." + key, .shape = {at.width, at.width}};
    if (auto bound = linear(at.context, section.get(key), nullptr, at.scope, request, Role::HeadDenseBias, true))
      *target = std::move(*bound);
  }
  int64_t in = at.width + spec.heads;
  for (int64_t i = 0; i < 2; ++i) {
    Scope own = at.scope;
    own.variables.layer = i;
    const std::string name = "convolutions." + std::to_string(i);
    spec.convolutions.push_back(mask_convolution(at, *section.get("convolution"), own, name, in, i == 0 ? in : -1));
    in = outputs_of(spec.convolutions.back().kernel);
  }
  const auto stages = source ? static_cast<int64_t>(source->input.backbone->stages.size()) : 1;
  for (int64_t i = 0; i + 1 < stages; ++i) {
    Scope own = at.scope;
    own.variables.layer = i;
    const std::string name = "fusions." + std::to_string(i);
    const int64_t given = source->input.backbone->channels_of(static_cast<size_t>(stages - 2 - i));
    const ParamRequest request{.role = Role::ConvolutionWeight,
                               .path = at.path + "." + name + ".adapter",
                               .shape = {in, given > 0 ? given : -1, 1, 1}};
    MasksSpec::Fusion fusion;
    const Node& row = *section.get("fusion");
    if (!row.get("adapter") || !row.get("refine")) refuse_policy(row, "a fusion needs \"adapter\" and \"refine\"");
    if (auto bound = linear(at.context, row.get("adapter"), nullptr, own, request, Role::ConvolutionBias, true))
      fusion.adapter = std::move(*bound);
    fusion.refine = mask_convolution(at, *row.get("refine"), own, name + ".refine", in, -1);
    in = outputs_of(fusion.refine.kernel);
    spec.fusions.push_back(std::move(fusion));
  }
  spec.output = mask_convolution(at, *section.get("final"), at.scope, "final", in, 1).kernel;
  return spec;
}

PixelShuffleSpec Builder::pixel_shuffle(const HeadScope& at) {
  const Node& section = *at.section.get("pixel_shuffle");
  for (const char* key : {"channels", "size"})
    if (!section.get(key)) refuse_policy(section, std::string("pixel_shuffle needs \"") + key + "\"");
  PixelShuffleSpec spec{.linear = {}, .size = small_size(section, "size", at.scope)};
  const int64_t channels = small_size(section, "channels", at.scope);
  if (spec.size > most_pixels || channels > most_pixels)
    unreadable(section, "config.json gives squares of " + std::to_string(spec.size) + " pixels with " +
                            std::to_string(channels) + " channels, expected at most " + std::to_string(most_pixels));
  const ParamRequest request{.role = Role::ConvolutionWeight,
                             .path = at.path + ".pixels",
                             .shape = {channels * spec.size * spec.size, at.width, 1, 1}};
  if (auto bound = linear(at.context, &section, nullptr, at.scope, request, Role::ConvolutionBias, true))
    spec.linear = std::move(*bound);
  return spec;
}

}  // namespace pm::policy
