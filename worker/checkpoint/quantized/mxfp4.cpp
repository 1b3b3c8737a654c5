// SPDX-License-Identifier: Apache-2.0
// MXFP4 experts (quant_method mxfp4): E2M1 codes of all experts in blocks of 32 inputs, each with an exponent as scale.
// The dense tensor is transposed, [experts, in, out], as transformers' modules have it.
#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t block_bytes = 16;  ///< 32 codes of 4 bits

}  // namespace

void assemble_mxfp4(Assembly& assembly) {
  constexpr std::string_view ending = "_blocks";
  for (const std::string& name : assembly.names(ending)) {
    const std::string dense = name.substr(0, name.size() - ending.size());
    const Part blocks = assembly.take(name, name), scales = assembly.take(dense + "_scales", name);
    assembly.expect_type(blocks, {"U8"});
    assembly.expect_type(scales, {"U8"});
    const std::vector<int64_t>& shape = blocks.info.shape;
    if (shape.size() != 4 || shape[3] != block_bytes || blocks.info.bytes == 0)
      assembly.refuse(name, "has shape " + shape_text(shape) + ", expected [experts, out, in / 32, 16]");
    assembly.expect_shape(scales, {shape[0], shape[1], shape[2]});
    const int64_t in = 2 * block_bytes * shape[2];
    ScaledCodes packed;
    packed.codes = {
        .stored = blocks.info, .rows = shape[1], .columns = in, .bits = 4, .number = CodeMatrix::Number::E2M1};
    packed.scale = assembly.scales(scales, shape[1], shape[2], true);
    packed.block_columns = 2 * block_bytes;
    packed.transposed = true;
    packed.matrices = shape[0];
    assembly.add(dense, {shape[0], in, shape[1]}, std::move(packed));
  }
}

}  // namespace pm::checkpoint
