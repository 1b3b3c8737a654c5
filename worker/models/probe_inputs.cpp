// SPDX-License-Identifier: Apache-2.0
#include "worker/models/probe_inputs.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "worker/models/heads/heads.h"
#include "worker/models/model.h"
#include "worker/models/separators.h"

namespace pm::models {

namespace {

Array token_ids(const policy::Model& model, const policy::Stack& stack, int64_t tokens) {
  const int64_t id = model.eos.empty() || model.eos[0] >= stack.vocab ? 0 : model.eos[0];
  const std::vector<int64_t> ids(static_cast<size_t>(tokens), id);
  return model.takes_choices() ? Array{{1, 1, tokens}, ids} : Array{{1, tokens}, ids};
}

/// Returns whether a head reads the tokens where mentions of entities begin and end.
bool reads_spans(const policy::Model& model) {
  return std::any_of(model.heads.begin(), model.heads.end(),
                     [](const policy::Head& head) { return head.entities == policy::EntityStates::Span; });
}

Array black_image(const policy::Stack& stack) {
  const int64_t channels = stack.input.projection->weight.shape[1];
  const auto [height, width] = stack.input.image;
  return {{1, channels, height, width}, std::vector<float>(static_cast<size_t>(channels * height * width))};
}

/// A black image of up to `patches` patches, and at least one square, in a tower of images of any size.
Arrays black_patches(const policy::Stack& stack, int64_t patches) {
  const std::vector<int64_t>& weight = stack.input.projection->weight.shape;
  const policy::PatchGrid& grid = *stack.input.patch_grid;
  const int64_t merge = grid.merge, across = std::max<int64_t>(1, patches / (merge * merge)) * merge,
                count = merge * across,
                width = std::accumulate(weight.begin() + 1, weight.end(), int64_t{1}, std::multiplies<>());
  if (!grid.sizes.empty()) {
    const int64_t high = merge * weight[2], wide = across * weight[3];
    return {{"pixel_values",
             {{1, weight[1], high, wide}, std::vector<float>(static_cast<size_t>(weight[1] * high * wide))}},
            {grid.sizes, {{1, 2}, std::vector<int64_t>{high, wide}}}};
  }
  return {{"pixel_values", {{count, width}, std::vector<float>(static_cast<size_t>(count * width))}},
          {"image_grid_thw", {{1, 3}, std::vector<int64_t>{1, merge, across}}}};
}

/// A black image, with all its frames, whose pixels are rows.
Array black_pixels(const policy::Pixels& pixels) {
  constexpr int64_t side = 32;
  const int64_t height = pixels.image[0] > 0 ? pixels.image[0] : side,
                width = pixels.image[1] > 0 ? pixels.image[1] : side;
  std::vector<int64_t> shape{1, pixels.channels, height, width};
  if (pixels.frames > 1) shape.insert(shape.begin() + 1, pixels.frames);
  return {shape, std::vector<float>(static_cast<size_t>(pixels.frames * pixels.channels * height * width))};
}

/// A black image that a backbone makes cells of.
Array small_image(const policy::Backbone& backbone) {
  constexpr int64_t side = 32;
  return {{1, backbone.channels, side, side}, std::vector<float>(static_cast<size_t>(backbone.channels * side * side))};
}

Array silence(const policy::Convolutions& convolutions, int64_t frames) {
  const int64_t length = convolutions.length(frames), bins = std::max<int64_t>(1, convolutions.bins);
  std::vector<int64_t> shape{1, length};
  if (convolutions.bins > 0) shape.insert(convolutions.bins_first ? shape.begin() + 1 : shape.end(), bins);
  return {shape, std::vector<float>(static_cast<size_t>(length * bins))};
}

/// Returns a token for each row of an image; one for an image of any size, which has one square.
Array image_token_ids(const policy::ImageTokens& images) {
  const int64_t rows = std::max<int64_t>(1, images.rows);
  return {{1, rows}, std::vector<int64_t>(static_cast<size_t>(rows), images.token)};
}

/// Returns one vector.
Array zeros(const policy::Vectors::Part& part) {
  const int64_t width = part.projection.weight.shape[1];
  return {{1, 1, width}, std::vector<float>(static_cast<size_t>(width))};
}

}  // namespace

Arrays blank_source(const policy::Model& model, int64_t states) {
  const policy::Stack* source = Model::source_stack(model);
  if (!source || !source->input.reads_media())
    throw std::logic_error(model.architecture + " has no encoder of images or audio");
  if (const auto& convolutions = source->input.convolutions)
    return {{convolutions->input, silence(*convolutions, states)}};
  return {{"pixel_values", black_image(*source)}};
}

Arrays blank_image(const policy::Model& model, int64_t patches) {
  const auto& images = Model::generating_stack(model).input.images;
  if (!images) return {};
  const policy::Stack& tower = *model.stack(images->stack);
  return tower.input.patch_grid ? black_patches(tower, patches) : Arrays{{"pixel_values", black_image(tower)}};
}

Arrays probe_inputs(const policy::Model& model) {
  ProbeInputs inputs;
  add_head_probe_inputs(model, inputs);
  const policy::Stack* encoder = Model::source_stack(model);
  for (const policy::Stack& stack : model.stacks) {
    if (!stack.joins.empty()) continue;
    if (has_sliding_window(stack)) {  // global tokens have weights of their own; the class may find none by itself
      Array mask = token_ids(model, stack, inputs.tokens);
      std::get<std::vector<int64_t>>(mask.values).assign(static_cast<size_t>(inputs.tokens), 1);
      inputs.arrays["global_attention_mask"] = std::move(mask);
    }
    if (const auto& entities = stack.input.entities) {  // two, for heads that read pairs; at the first token
      for (const std::string& name :
           {entities->input, std::string("entity_start_positions"), std::string("entity_end_positions")}) {
        const bool positions = name != entities->input;
        if (positions && !reads_spans(model)) continue;
        Array numbers = token_ids(model, stack, 2);
        std::get<std::vector<int64_t>>(numbers.values).assign(2, 0);
        inputs.arrays[name] = std::move(numbers);
      }
      Array mentions = inputs.arrays[entities->input];
      mentions.shape.push_back(1);
      inputs.arrays[entities->mentions] = std::move(mentions);
    }
    if (stack.input.convolutions) {
      inputs.arrays[stack.input.convolutions->input] = silence(*stack.input.convolutions, inputs.tokens);
    } else if (stack.input.vectors) {
      for (const policy::Vectors::Part& part : stack.input.vectors->parts) inputs.arrays[part.input] = zeros(part);
    } else if (stack.input.images) {
      inputs.arrays["input_ids"] = image_token_ids(*stack.input.images);
    } else if (stack.input.token)  // of an encoder, not of its decoder, unless the encoder reads images or audio
      inputs.arrays.emplace(encoder && encoder->input.reads_media() ? "decoder_input_ids" : "input_ids",
                            token_ids(model, stack, inputs.tokens));
    else if (const auto& pixels = stack.input.pixels)
      inputs.arrays[pixels->input] = black_pixels(*pixels);
    else if (const auto& backbone = stack.input.backbone)
      inputs.arrays["pixel_values"] = small_image(*backbone);
    else if (stack.input.patch_grid)
      inputs.arrays.merge(black_patches(stack, 1));
    else if (!stack.input.queries)
      inputs.arrays["pixel_values"] = black_image(stack);
  }
  return std::move(inputs.arrays);
}

}  // namespace pm::models
