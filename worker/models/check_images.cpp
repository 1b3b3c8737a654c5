// SPDX-License-Identifier: Apache-2.0
#include "worker/models/check_images.h"

#include <algorithm>

#include "worker/models/model.h"

namespace pm::models {

namespace {

constexpr int64_t axes_of_patches = 2;  // row and column
constexpr int64_t axes_of_tokens = 3;   // time, row and column

void check_patch_grid(const policy::Model& model, const policy::Stack& stack) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  const policy::Input& input = stack.input;
  if (!input.reads_patches() || input.token || input.positions || input.position != policy::PositionKind::None ||
      input.features || !input.tables.empty() || input.class_token || input.distillation_token || input.mask_token ||
      input.convolutions || input.vectors || input.latents || input.quantized || input.scale != 1)
    refuse("has patches of images of any size beside tokens, other positions, tables, audio or vectors");
  if (!stack.output.image_projector || model.stacks.size() == 1)
    refuse("reads images alone; such a tower is served as a part of a model that reads its rows");
  if (stack.output.norm || stack.output.projection || policy::is_recurrent(stack))
    refuse("has a tower of patches of images of any size with an output or layers that are not served");
  for (const policy::Layer& layer : stack.layers) {
    const policy::Attention& self = layer.attention;
    if (self.mask != policy::Mask::Full || self.is_sparse() || self.window > 0 || self.relative_content ||
        self.relative_position_bias || self.alibi || self.chunks || self.entity_queries || self.latent || layer.cross)
      refuse("has patches of images of any size that attend by other positions than rotary ones, or not to all");
    if (self.in_patch_windows && input.patch_grid->window == 0) refuse("has layers that attend within no window");
  }
}

}  // namespace

void check_images(const policy::Model& model, const policy::Stack& stack) {
  const auto refuse = [&](const std::string& what) { policy::refuse_architecture(model, what); };
  if (stack.input.patch_grid) check_patch_grid(model, stack);
  for (const policy::Layer& layer : stack.layers) {
    const auto& rotary = layer.attention.rotary;
    if (layer.attention.in_patch_windows && !stack.input.patch_grid) refuse("has windows of patches without patches");
    if (!rotary || !rotary->axes) continue;
    const bool patches = stack.input.patch_grid.has_value();
    if (rotary->axes->count != (patches ? axes_of_patches : axes_of_tokens) ||
        (!patches && !rotary->axes->exponents.empty()) || rotary->long_rope || rotary->query_growth)
      refuse("has rotary positions along axes that its rows do not have, or beside a scaling by length");
  }
  if (const auto& images = stack.input.images) {
    const policy::Stack* tower = model.stack(images->stack);
    if (!tower || tower == &stack || !tower->input.reads_patches() || !tower->output.image_projector)
      refuse("has images among its tokens that no tower of patches makes rows of");
    if (!policy::has_rows_of_tokens(stack) || stack.input.layer_inputs || model.recompute || stack.layers[0].cross)
      refuse("has images among rows that are not those of tokens alone, or whose layers read more than them");
    if (images->deepstack > static_cast<int64_t>(stack.layers.size()))
      refuse("has more rows of deep projectors than layers");
    if (images->bidirectional && tower->input.patch_grid)
      refuse("has images of any size whose tokens attend in both directions");
  }
  const auto& projector = stack.output.image_projector;
  const bool skips_all = projector && !stack.input.patch_grid && projector->skipped >= stack.positions;
  if (projector && (stack.output.pooler || policy::changes_rows(stack) || skips_all))
    refuse("has a tower of images that pools its states");
  if (projector && stack.input.patch_grid && (projector->skipped > 0 || projector->pooled > 1))
    refuse("leaves out or pools states of images of any size");
}

}  // namespace pm::models
