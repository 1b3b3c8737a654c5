// SPDX-License-Identifier: Apache-2.0
// Builder: pixels of images as the rows of a stack.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

/// The maximum number of pixels of an image whose positions are learned, and of frequencies of the others.
constexpr int64_t most_positions = int64_t{1} << 20, most_bands = 4096;
/// The maximum side of images of one size.
constexpr int64_t most_side = int64_t{1} << 15;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

}  // namespace

/// Builds the positions of pixels, and returns how wide they are; -1 where the checkpoint lacks their projection.
int64_t Builder::pixel_positions(const Context& context, const Node& section, const Scope& scope,
                                 const std::string& path, Pixels& made) {
  if (const Node* fourier = section.get("fourier")) {
    if (section.get("positions")) refuse_policy(*fourier, "\"fourier\" stands alone among positions of pixels");
    if (!fourier->get("resolution")) refuse_policy(*fourier, "fourier needs \"bands\" and \"resolution\"");
    made.fourier = {.bands = small_size(*fourier, "bands", scope),
                    .resolution = height_and_width(*fourier->get("resolution"), scope.variables)};
    if (made.fourier.bands > most_bands)
      unreadable(*fourier, "config.json gives " + std::to_string(made.fourier.bands) +
                               " frequencies, expected at most " + std::to_string(most_bands));
    return made.fourier.width();
  }
  const std::optional<Binding> row = binder_.binding(section.get("positions"), scope.variables);
  const int64_t count = made.image[0] * made.image[1];
  if (!row || !row->names() || count == 0 || !row->option("width"))
    refuse_policy(section, "pixels need \"fourier\", or \"positions\" with \"width\" and the size of all images");
  const int64_t width = small_size(*row->node, "width", scope);
  if (count > most_positions)
    unreadable(section, "config.json gives images of " + std::to_string(count) + " pixels, expected at most 2^20");
  const ParamRequest table{
      .role = Role::PositionEmbedding, .path = path + "positions", .shape = {count, width}, .units = count};
  made.positions = binder_.bind(table, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  const ParamRequest projection{
      .role = Role::EmbeddingProjection, .path = path + "position_projection", .shape = {-1, width}};
  made.position_projection =
      linear(context, section.get("position_projection"), nullptr, scope, projection, Role::HeadDenseBias, true);
  if (!made.position_projection) return width;
  return made.position_projection->weight.shape.empty() ? -1 : made.position_projection->weight.shape[0];
}

std::optional<Pixels> Builder::pixels(const Context& context, const Node& input, const Scope& outer,
                                      const std::string& path) {
  const Node* node = input.get("pixels");
  if (!node) return std::nullopt;
  Scope scope = outer;
  if (const Node* at = node->get("at")) binder_.enter(*at, scope);
  Pixels made;
  if (const Node* name = node->get("input")) made.input = name->text;
  made.channels = small_size(*node, "channels", scope);
  if (node->get("frames")) made.frames = small_size(*node, "frames", scope);
  if (const Node* image = node->get("image")) made.image = height_and_width(*image, scope.variables);
  if (std::max(made.image[0], made.image[1]) > most_side)
    unreadable(*node, "config.json gives images of " + std::to_string(made.image[0]) + " x " +
                          std::to_string(made.image[1]) + " pixels, expected at most " + std::to_string(most_side) +
                          " on each side");
  int64_t values = made.channels * made.frames;
  if (const Node* section = node->get("convolution")) {
    const int64_t out = small_size(*section, "channels", scope);
    made.convolution =
        image_convolution(*section, scope, path + "convolution", values, out, small_size(*section, "size", scope));
    values = out;
  }
  const Node *linear_row = node->get("projection"), *kernel = node->get("kernel");
  if (linear_row && kernel) refuse_policy(*kernel, "\"kernel\" is a projection of pixels, beside which is no other");
  ParamRequest request{.role = Role::PatchProjection, .path = path + "projection", .shape = {-1, values}};
  if (kernel) request.shape = {-1, values, 1, 1};
  made.projection = linear(context, kernel ? kernel : linear_row, nullptr, scope, request, Role::HeadDenseBias, true);
  if (made.projection) values = made.projection->weight.shape.empty() ? -1 : made.projection->weight.shape[0];
  const int64_t places = pixel_positions(context, *node, scope, path, made);
  if (values > 0 && places > 0 && values + places != context.sizes.embedding)
    unreadable(*node, "pixels have " + std::to_string(values) + " values and positions of " + std::to_string(places) +
                          "; the embedding is " + std::to_string(context.sizes.embedding) +
                          " wide, expected their sum");
  return made;
}

}  // namespace pm::policy
