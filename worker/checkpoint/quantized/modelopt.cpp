// SPDX-License-Identifier: Apache-2.0
// ModelOpt (quant_method modelopt): FP4 with a scale for 16 inputs and one for the matrix (NVFP4), or F8_E4M3 with one
// scale (FP8).
#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

void add_fp4(Assembly& assembly, const std::string& module) {
  const std::string name = module + ".weight";
  const Part codes = assembly.take(name, name), scale = assembly.take(module + ".weight_scale", name),
             global = assembly.take(module + ".weight_scale_2", name);
  if (global.info.bytes != size_of(DType::F32))
    assembly.refuse(global.info.name, "has shape " + shape_text(global.info.shape) + ", expected one number");
  PackedMatrix packed = nvfp4_matrix(assembly, name, codes, scale, global);
  const std::vector<int64_t> shape{packed.codes.rows, packed.codes.columns};
  assembly.add(name, shape, std::move(packed));
}

void add_fp8(Assembly& assembly, const std::string& module) {
  const std::string name = module + ".weight";
  const Part codes = assembly.take(name, name), scale = assembly.take(module + ".weight_scale", name);
  assembly.expect_type(scale, {"F32"});
  if (scale.info.bytes != size_of(DType::F32))
    assembly.refuse(scale.info.name, "has shape " + shape_text(scale.info.shape) + ", expected one number");
  if (codes.info.shape.size() != 2 || codes.info.bytes == 0)
    assembly.refuse(name, "has shape " + shape_text(codes.info.shape) + ", expected a quantised matrix");
  PackedMatrix packed;
  packed.codes = {.stored = codes.info,
                  .rows = codes.info.shape[0],
                  .columns = codes.info.shape[1],
                  .number = CodeMatrix::Number::E4M3};
  packed.scale = assembly.scales(scale, 1, 1);
  packed.block_rows = packed.codes.rows;
  packed.block_columns = packed.codes.columns;
  assembly.add(name, codes.info.shape, std::move(packed));
}

}  // namespace

void assemble_modelopt(Assembly& assembly) {
  constexpr std::string_view plain = ".weight";
  for (const std::string& name : assembly.names(plain)) {
    const std::string module = name.substr(0, name.size() - plain.size()), type = assembly.find(name)->type;
    if (type == "U8") add_fp4(assembly, module);
    if (type == "F8_E4M3") add_fp8(assembly, module);
  }
  // scales of activations and of the KV cache, which are not quantised here
  for (const char* ending : {".input_scale", ".k_scale", ".v_scale"})
    for (const std::string& name : assembly.names(ending)) assembly.drop({name});
}

}  // namespace pm::checkpoint
