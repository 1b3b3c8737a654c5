// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/patch_grids.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "worker/models/requests/arrays.h"

namespace pm::models {

namespace {

constexpr const char* pixels_name = "pixel_values";
constexpr const char* grids_name = "image_grid_thw";
constexpr int64_t most_side = 1 << 14;  // of an image in patches, so that no product overflows

/// The patches of all images in the order in which the stack reads them.
struct Rows {
  std::vector<int64_t> given;  ///< which of the request's patches each is; of a whole image they stand row by row
  std::vector<int64_t> axes;   ///< row and column of each, in turn
  std::vector<int64_t> table_rows;
  std::vector<float> shares;
  std::vector<int64_t> squares;  ///< which of the request's squares each is
};

/// The two rows of a table of `side` positions between which one of `count` positions lies, and their shares, in F32 as
/// transformers computes them.
struct Between {
  std::array<int64_t, 2> rows;
  std::array<float, 2> shares;
};

Between between(int64_t position, int64_t count, int64_t side) {
  const float at =
      static_cast<float>(position) * static_cast<float>(side - 1) / static_cast<float>(std::max<int64_t>(1, count - 1));
  const float below = std::floor(at);
  const auto row = static_cast<int64_t>(below);
  const float share = at - below;
  return {{std::min(row, side - 1), std::min(row + 1, side - 1)}, {1 - std::abs(share), 1 - std::abs(share - 1)}};
}

/// Adds the positions of a patch in a table of side x side rows.
void add_positions(std::array<int64_t, 2> place, std::array<int64_t, 2> grid, int64_t side, Rows& rows) {
  const Between down = between(place[0], grid[0], side), across = between(place[1], grid[1], side);
  for (const size_t i : {0, 1}) {
    for (const size_t j : {0, 1}) {
      rows.table_rows.push_back(down.rows[i] * side + across.rows[j]);
      rows.shares.push_back(down.shares[i] * across.shares[j]);
    }
  }
}

/// Adds the patches of an image of down x across patches, window by window where the stack has windows.
void add_image(const policy::PatchGrid& grid, std::array<int64_t, 2> size, Rows& rows, ops::StepSequences& windows) {
  const bool whole = !grid.sizes.empty();
  const int64_t merge = grid.merge, of_square = merge * merge, first_patch = static_cast<int64_t>(rows.given.size()),
                down = size[0] / merge, across = size[1] / merge,
                side = grid.window > 0 ? grid.window : std::max(down, across),
                first_square = static_cast<int64_t>(rows.squares.size());
  const int64_t table = grid.positions ? std::llround(std::sqrt(static_cast<double>(grid.positions->shape[0]))) : 0;
  for (int64_t top = 0; top < down; top += side) {
    for (int64_t left = 0; left < across; left += side) {
      const auto first = static_cast<int64_t>(rows.given.size());
      for (int64_t y = top; y < std::min(down, top + side); ++y) {
        for (int64_t x = left; x < std::min(across, left + side); ++x) {
          const int64_t square = first_square + y * across + x;
          rows.squares.push_back(square);
          for (int64_t patch = 0; patch < of_square; ++patch) {
            const std::array place{y * merge + patch / merge, x * merge + patch % merge};
            rows.given.push_back(whole ? first_patch + place[0] * size[1] + place[1] : square * of_square + patch);
            rows.axes.insert(rows.axes.end(), place.begin(), place.end());
            if (table > 0) add_positions(place, size, table, rows);
          }
        }
      }
      if (grid.window == 0) continue;
      const int64_t count = static_cast<int64_t>(rows.given.size()) - first;
      windows.spans.push_back(
          {.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
    }
  }
}

/// Returns rows and columns of patches of each image. Images stand one behind another in `patches` of a request.
std::vector<std::array<int64_t, 2>> grids_of(const policy::PatchGrid& grid, int64_t patches, RequestTensors& tensors) {
  const Array* array = tensors.find(grids_name);
  if (!array)
    refuse(std::string("the inputs have \"") + pixels_name + "\" without \"" + grids_name +
           "\" [images, 3]: frames, rows and columns of patches");
  if (!std::holds_alternative<std::vector<int64_t>>(array->values))
    refuse(std::string(grids_name) + " has fractional values, expected integers");
  const at::Tensor all = tensor_of(*array);
  if (all.dim() != 2 || all.size(1) != 3 || all.size(0) == 0)
    refuse(std::string(grids_name) + " has the shape " + c10::str(all.sizes()) + ", expected [images, 3]");
  std::vector<std::array<int64_t, 2>> grids;
  const auto rows = all.accessor<int64_t, 2>();
  int64_t sum = 0;
  for (int64_t image = 0; image < all.size(0); ++image) {
    const int64_t frames = rows[image][0];
    const std::array<int64_t, 2> size{rows[image][1], rows[image][2]};
    const auto fits = [&](int64_t side) { return side > 0 && side <= most_side && side % grid.merge == 0; };
    if (frames != 1 || !fits(size[0]) || !fits(size[1]))
      refuse(std::string(grids_name) + " has " + std::to_string(frames) + " x " + std::to_string(size[0]) + " x " +
             std::to_string(size[1]) + " patches in row " + std::to_string(image) +
             ", expected 1 frame and sides that are multiples of " + std::to_string(grid.merge) + " up to " +
             std::to_string(most_side));
    sum += size[0] * size[1];
    grids.push_back(size);
  }
  if (sum != patches)
    refuse(std::string(pixels_name) + " has " + std::to_string(patches) + " patches, the images of " + grids_name +
           " have " + std::to_string(sum));
  return grids;
}

at::Tensor numbers(const std::vector<int64_t>& all) { return at::tensor(all, at::kLong); }

/// The patches of a request [patches, numbers of a patch], and the rows and columns of those of each image.
struct Patches {
  at::Tensor values;
  std::vector<std::array<int64_t, 2>> grids;
};

/// Cuts whole images [images, channels, height, width] into patches [channels, high, wide].
Patches cut(const policy::PatchGrid& grid, const at::Tensor& pixels, std::array<int64_t, 2> patch,
            RequestTensors& tensors) {
  const int64_t images = pixels.size(0), height = pixels.size(2), width = pixels.size(3);
  const Array* array = tensors.find(grid.sizes);
  if (array && !std::holds_alternative<std::vector<int64_t>>(array->values))
    refuse(grid.sizes + " has fractional values, expected integers");
  const at::Tensor sizes = array ? tensor_of(*array) : numbers({height, width}).unsqueeze(0).repeat({images, 1});
  if (sizes.dim() != 2 || sizes.size(0) != images || sizes.size(1) != 2)
    refuse(grid.sizes + " has the shape " + c10::str(sizes.sizes()) + ", expected [" + std::to_string(images) +
           ", 2]: height and width of each image");
  Patches found;
  std::vector<at::Tensor> all;
  const auto rows = sizes.accessor<int64_t, 2>();
  for (int64_t image = 0; image < images; ++image) {
    const int64_t high = rows[image][0], wide = rows[image][1];
    const auto fits = [&](int64_t side, int64_t most, int64_t of_patch) {
      return side > 0 && side <= std::min(most, most_side * of_patch) && side % (of_patch * grid.merge) == 0;
    };
    if (!fits(high, height, patch[0]) || !fits(wide, width, patch[1]))
      refuse(grid.sizes + " has " + std::to_string(high) + " x " + std::to_string(wide) + " pixels in row " +
             std::to_string(image) + " of images of " + std::to_string(height) + " x " + std::to_string(width) +
             ", expected multiples of " + std::to_string(patch[0] * grid.merge) + " x " +
             std::to_string(patch[1] * grid.merge));
    const int64_t down = high / patch[0], across = wide / patch[1];
    all.push_back(pixels[image]
                      .narrow(1, 0, high)
                      .narrow(2, 0, wide)
                      .reshape({pixels.size(1), down, patch[0], across, patch[1]})
                      .permute({1, 3, 0, 2, 4})
                      .reshape({down * across, -1}));
    found.grids.push_back({down, across});
  }
  found.values = at::cat(all);
  return found;
}

Patches find_patches(const policy::Stack& stack, RequestTensors& tensors) {
  const policy::PatchGrid& grid = *stack.input.patch_grid;
  const std::vector<int64_t>& weight = stack.input.projection->weight.shape;
  const Array& array = *tensors.find(pixels_name);
  if (!std::holds_alternative<std::vector<float>>(array.values))
    refuse(std::string(pixels_name) + " has integers, expected fp32");
  const at::Tensor pixels = tensor_of(array);
  if (!grid.sizes.empty()) {
    if (pixels.dim() != 4 || pixels.numel() == 0 || pixels.size(1) != weight[1])
      refuse(std::string(pixels_name) + " has the shape " + c10::str(pixels.sizes()) + ", expected [images, " +
             std::to_string(weight[1]) + ", height, width]");
    return cut(grid, pixels, {weight[2], weight[3]}, tensors);
  }
  const int64_t width = std::accumulate(weight.begin() + 1, weight.end(), int64_t{1}, std::multiplies<>());
  if (pixels.dim() != 2 || pixels.size(0) == 0 || pixels.size(1) != width)
    refuse(std::string(pixels_name) + " has the shape " + c10::str(pixels.sizes()) + ", expected [patches, " +
           std::to_string(width) + "]");
  return {pixels, grids_of(grid, pixels.size(0), tensors)};
}

}  // namespace

StackInput read_patches(const policy::Stack& stack, RequestTensors& tensors) {
  const policy::PatchGrid& grid = *stack.input.patch_grid;
  const Patches given = find_patches(stack, tensors);
  StackInput made;
  Rows rows;
  int64_t first = 0;
  for (const std::array<int64_t, 2>& size : given.grids) {
    const int64_t count = size[0] * size[1];
    add_image(grid, size, rows, made.batch.patch_windows);
    made.batch.sequences.spans.push_back(
        {.first = first, .tokens = count, .context = 0, .keys = count, .key_row = first, .blocks = {}});
    made.columns.push_back(at::arange(count, at::kLong));
    made.image_grids.push_back({size[0] / grid.merge, size[1] / grid.merge});
    made.length = std::max(made.length, count);
    first += count;
  }
  made.rows = static_cast<int64_t>(made.image_grids.size());
  made.tokens = made.length;
  layers::PatchRows& patches = made.batch.patches;
  patches.values = at::index_select(given.values, 0, numbers(rows.given));
  patches.squares = numbers(rows.squares);
  if (grid.positions) {
    patches.table_rows = numbers(rows.table_rows).unflatten(0, {first, 4});
    patches.shares = at::tensor(rows.shares, at::kFloat).unflatten(0, {first, 4});
  }
  made.batch.axes = numbers(rows.axes).unflatten(0, {first, 2});
  made.batch.positions = at::arange(first, at::kLong);
  made.places = at::arange(first, at::kLong);
  return made;
}

void find_axes(const policy::Stack& stack, const at::Tensor& types, const StackInput& images, StackInput& text) {
  if (!types.defined()) return;
  const at::Tensor own = at::index_select(types.flatten(), 0, text.places);
  const auto* type = own.const_data_ptr<int64_t>();
  const int64_t axes = policy::rotary_axes(stack);
  std::vector<int64_t> places;
  size_t image = 0;
  for (const ops::SequenceSpan& span : text.batch.sequences.spans) {
    int64_t position = 0;
    for (int64_t i = 0; i < span.tokens;) {
      if (type[span.first + i] == 0) {
        places.insert(places.end(), static_cast<size_t>(axes), position++);
        ++i;
        continue;
      }
      if (image == images.image_grids.size())
        refuse("mm_token_type_ids has more than the " + std::to_string(image) + " images of " + grids_name);
      const auto [down, across] = images.image_grids[image++];
      for (int64_t square = 0; square < down * across; ++square, ++i) {
        if (i == span.tokens || type[span.first + i] != 1)
          refuse("mm_token_type_ids has " + std::to_string(square) + " tokens of image " + std::to_string(image - 1) +
                 " beside each other, " + grids_name + " has " + std::to_string(down * across) + " squares of patches");
        places.insert(places.end(), {position, position + square / across, position + square % across});
      }
      position += std::max(down, across);
    }
  }
  if (image < images.image_grids.size())
    refuse("mm_token_type_ids has " + std::to_string(image) + " images, " + grids_name + " has " +
           std::to_string(images.image_grids.size()));
  text.batch.axes = numbers(places).unflatten(0, {own.size(0), axes});
}

}  // namespace pm::models
