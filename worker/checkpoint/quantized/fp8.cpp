// SPDX-License-Identifier: Apache-2.0
// FP8 checkpoints (quant_method fp8): F8_E4M3 with scales by blocks, by matrix, or with exponents as scales, and FP4
// experts with a scale for 32 inputs. The value of a weight is code * scale, whatever the scale's name says.
#include <algorithm>

#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

/// Returns weight_block_size: rows and columns of a block, 0 where config.json states none.
std::pair<int64_t, int64_t> stated_block(const nlohmann::json& quantization) {
  const auto found = quantization.find("weight_block_size");
  if (found == quantization.end() || !found->is_array() || found->size() != 2 || !(*found)[0].is_number_integer() ||
      !(*found)[1].is_number_integer())
    return {0, 0};
  return {(*found)[0].get<int64_t>(), (*found)[1].get<int64_t>()};
}

/// Reads the grid of scales: [rows, columns] of blocks for each matrix, or one scale for a matrix or for all.
void read_grid(const Assembly& assembly, const Part& scale, ScaledCodes& packed) {
  std::vector<int64_t> grid = scale.info.shape;
  const bool stacked = packed.matrices > 1;
  const int64_t count = scale.info.bytes / size_of(scale.info.dtype);
  if (count == 1) {
    grid = {1, 1};
  } else if (stacked && !grid.empty() && grid[0] == packed.matrices) {
    grid.erase(grid.begin());
    packed.scale.each = true;
    if (grid.empty() || (grid.size() == 1 && grid[0] == 1)) grid = {1, 1};
  }
  const auto [block_rows, block_columns] = stated_block(assembly.quantization());
  const auto rows = grid.size() == 2 ? block_size(packed.codes.rows, grid[0], block_rows) : std::nullopt,
             columns = grid.size() == 2 ? block_size(packed.codes.columns, grid[1], block_columns) : std::nullopt;
  if (!rows || !columns || (stacked && count > 1 && !packed.scale.each))
    assembly.refuse(scale.info.name,
                    "has shape " + shape_text(scale.info.shape) + ", expected one scale, or blocks that cover " +
                        shape_text({packed.codes.rows, packed.codes.columns}) + " evenly or by weight_block_size" +
                        (stacked ? " for each of " + std::to_string(packed.matrices) + " matrices" : ""));
  packed.scale = assembly.scales(scale, grid[0], grid[1], packed.scale.each);
  packed.block_rows = *rows;
  packed.block_columns = *columns;
}

void add_matrix(Assembly& assembly, const std::string& name, bool fp4) {
  const Part weight = assembly.take(name, name);
  const std::string module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
  std::vector<int64_t> shape = weight.info.shape;
  if (shape.size() < 2 || shape.size() > 3)
    assembly.refuse(name, "has shape " + shape_text(shape) + ", expected a quantised matrix or a stack of them");
  if (fp4) shape.back() *= 2;
  ScaledCodes packed;
  packed.codes = {.stored = weight.info,
                  .rows = shape[shape.size() - 2],
                  .columns = shape.back(),
                  .bits = fp4 ? 4 : 8,
                  .number = fp4 ? CodeMatrix::Number::E2M1 : CodeMatrix::Number::E4M3};
  packed.matrices = shape.size() == 3 ? shape[0] : 1;
  read_grid(assembly, assembly.take_any({name + "_scale_inv", module + ".scale", module + ".qscale_weight"}, name),
            packed);
  assembly.drop(
      {module + ".activation_scale", module + ".input_scale", name + "_activation_scale", module + ".qscale_act"});
  assembly.add(name, shape, std::move(packed));
}

}  // namespace

void assemble_fp8(Assembly& assembly) {
  for (const std::string& name : assembly.names("")) {
    const Part part = *assembly.find(name);
    if (part.type == "F8_E4M3" && !name.ends_with("scale_inv") && !name.ends_with(".scale")) {
      add_matrix(assembly, name, false);
    } else if (part.type == "I8" && name.ends_with(".weight")) {
      add_matrix(assembly, name, true);
    }
  }
}

}  // namespace pm::checkpoint
