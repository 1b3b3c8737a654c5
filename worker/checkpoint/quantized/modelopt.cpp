// SPDX-License-Identifier: Apache-2.0
// ModelOpt (quant_method modelopt): FP4 with a scale for 16 inputs and one for the matrix (NVFP4), or F8_E4M3 with one
// scale (FP8).
#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

void add_fp8(Assembly& assembly, const std::string& module) {
  const std::string name = module + ".weight";
  const Part codes = assembly.take(name, name), scale = assembly.take(module + ".weight_scale", name);
  assembly.expect_type(scale, {"F32"});
  if (scale.info.bytes != size_of(DType::F32))
    assembly.refuse(scale.info.name, "has shape " + shape_text(scale.info.shape) + ", expected one number");
  assembly.expect_matrix(codes, "a quantised matrix");
  ScaledCodes packed;
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
    if (type == "U8") add_nvfp4(assembly, module, {".weight", ".weight_scale", ".weight_scale_2"});
    if (type == "F8_E4M3") add_fp8(assembly, module);
  }
  assembly.drop_all({".input_scale", ".k_scale", ".v_scale"});
}

}  // namespace pm::checkpoint
