// SPDX-License-Identifier: Apache-2.0
// Builder: the residual network that makes cells of images, their positions, and learned queries.
#include <initializer_list>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// The maximum numbers of stages and of blocks of one, which bound loops over a hostile config.json.
constexpr int64_t most_stages = 16, most_blocks = 256, most_convolutions = 8;
/// The maximum size of a kernel, and of the stride and the dilation.
constexpr int64_t most_pixels = 64;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

/// Returns a map of variables for the expressions of a section.
Node numbers(const Node& at, std::initializer_list<std::pair<const char*, int64_t>> values) {
  Node map;
  map.kind = Node::Kind::Map;
  for (const auto& [name, value] : values) {
    Node word, number;
    word.kind = number.kind = Node::Kind::Scalar;
    word.file = number.file = at.file;
    word.line = number.line = at.line;
    word.text = name;
    number.text = std::to_string(value);
    map.entries.emplace_back(std::move(word), std::move(number));
  }
  return map;
}

/// Returns the scope with further variables, which hide those of the policy; `map` has to outlive it.
Scope with(Scope scope, const Node& map) {
  scope.variables.lets.insert(scope.variables.lets.begin(), &map);
  return scope;
}

void expect_at_most(const Node& at, const char* what, int64_t value, int64_t most) {
  if (value > most)
    unreadable(
        at, "config.json gives " + std::to_string(value) + " " + what + ", expected at most " + std::to_string(most));
}

}  // namespace

ImageConvolution Builder::image_convolution(const Node& section, const Scope& scope, const std::string& path,
                                            int64_t in, int64_t out, int64_t size) {
  expect_at_most(section, "as the size of a kernel", size, most_pixels);
  if (size % 2 == 0)
    unreadable(section, "config.json gives a kernel of " + std::to_string(size) +
                            " pixels, expected an odd number: it is padded by half of that");
  ImageConvolution convolution;
  const std::optional<Binding> row = binder_.binding(section.get("kernel"), scope.variables);
  const std::optional<BatchNorm> norm = batch_norm(section, scope, path + ".norm", out);
  if (!row || !row->names() || !norm) refuse_policy(section, "the section needs \"kernel\" and \"batch_norm\"");
  const ParamRequest request{.role = Role::ConvolutionWeight, .path = path + ".weight", .shape = {out, in, size, size}};
  convolution.kernel =
      binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  convolution.norm = *norm;
  for (auto [key, value] : {std::pair{"stride", &convolution.stride}, {"dilation", &convolution.dilation}}) {
    if (section.get(key)) *value = small_size(section, key, scope);
    expect_at_most(section, key, *value, most_pixels);
  }
  return convolution;
}

std::optional<Backbone> Builder::backbone(const Node& section, const Scope& outer, const std::string& path) {
  const Node* node = section.get("backbone");
  if (!node) return std::nullopt;
  const Node *mask = node->get("mask"), *stem = node->get("stem"), *unit = node->get("block");
  if (!mask || !stem || !unit) refuse_policy(*node, "a backbone needs \"mask\", \"stem\" and \"block\"");
  const Node* shortcut = unit->get("shortcut");
  if (!shortcut) refuse_policy(*unit, "a block needs \"shortcut\"");
  Scope scope = outer;
  if (const Node* at = node->get("at")) binder_.enter(*at, scope);
  Backbone made{.mask = mask->text, .channels = small_size(*node, "channels", scope), .stem = {}, .stages = {}};
  if (node->get("act")) made.activation = activation(node->get("act"), scope.variables);
  int64_t width = small_size(*stem, "channels", scope);
  made.stem = image_convolution(*stem, scope, path + ".stem", made.channels, width, small_size(*stem, "size", scope));
  const int64_t stages = small_size(*node, "stages", scope);
  expect_at_most(*node, "stages", stages, most_stages);
  for (int64_t stage = 0; stage < stages; ++stage) {
    const Node of_stage = numbers(*node, {{"stage", stage}});
    const int64_t blocks = small_size(*node, "blocks", with(scope, of_stage));
    expect_at_most(*node, "blocks", blocks, most_blocks);
    std::vector<ResidualBlock>& all = made.stages.emplace_back();
    for (int64_t number = 0; number < blocks; ++number) {
      const std::string name = path + "." + std::to_string(stage) + "." + std::to_string(number);
      const Node of_block = numbers(*unit, {{"stage", stage}, {"block", number}});
      const Scope own = with(scope, of_block);
      const int64_t count = small_size(*unit, "convolutions", own), before = width;
      expect_at_most(*unit, "convolutions", count, most_convolutions);
      ResidualBlock& block = all.emplace_back();
      int64_t stride = 1;
      for (int64_t i = 0; i < count; ++i) {
        const Node of_convolution = numbers(*unit, {{"stage", stage}, {"block", number}, {"convolution", i}});
        const Scope inner = with(scope, of_convolution);
        const int64_t out = small_size(*unit, "channels", inner);
        block.convolutions.push_back(image_convolution(*unit, inner, name + "." + std::to_string(i), width, out,
                                                       small_size(*unit, "size", inner)));
        stride *= block.convolutions.back().stride;
        width = out;
      }
      if (stride == 1 && width == before) continue;
      block.shortcut = image_convolution(*shortcut, own, name + ".shortcut", before, width, 1);
      block.shortcut->stride = stride;
    }
  }
  return made;
}

std::optional<GridPosition> Builder::grid(const Context& context, const Node& position, const Scope& scope,
                                          const std::string& path) {
  const Node* kind = position.get("grid");
  if (!kind) return std::nullopt;
  GridPosition grid;
  const bool learned = parse_keyword(*kind, scope.variables, grid_words) == "learned";
  if (context.sizes.hidden % (learned ? 2 : 4))
    unreadable(position, "config.json gives a width of " + std::to_string(context.sizes.hidden) +
                             ", expected a multiple of " + (learned ? "2" : "4") + " for positions of cells");
  if (!learned) return grid;
  const int64_t count = small_size(position, "rows", scope);
  for (auto [key, table] : {std::pair{"row", &grid.rows}, {"column", &grid.columns}}) {
    const std::optional<Binding> row = binder_.binding(position.get(key), scope.variables);
    if (!row || !row->names()) refuse_policy(position, "learned positions of cells need \"row\" and \"column\"");
    const ParamRequest request{.role = Role::PositionEmbedding,
                               .path = path + key,
                               .shape = {count, context.sizes.hidden / 2},
                               .units = count};
    *table = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  }
  return grid;
}

std::optional<Param> Builder::queries(const Context& context, const Node& section, const Scope& scope,
                                      const std::string& path) {
  const Node* node = section.get("queries");
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row || !row->names()) return std::nullopt;
  if (!row->option("count")) refuse_policy(*node, "queries need \"from\" and \"count\"");
  const int64_t count = small_size(*node, "count", scope);
  const ParamRequest request{.role = Role::PositionEmbedding,
                             .path = path + "queries",
                             .shape = {count, context.sizes.hidden},
                             .units = count};
  return binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
}

/// Projects values apart where queries and keys, or the keys of cross-attention, have positions that values lack.
void Builder::add_positions(Stack& stack) const {
  for (Layer& layer : stack.layers) {
    if (stack.input.adds_positions()) layer.attention.values_apart = true;
    const Stack* source = layer.cross ? model_.stack(layer.cross->source) : nullptr;
    if (source && source->input.adds_positions()) layer.cross->values_apart = true;
  }
}

}  // namespace pm::policy
