// SPDX-License-Identifier: Apache-2.0
// bitsandbytes (quant_method bitsandbytes): NF4 and FP4, whose scales may be quantised too, and the rows of LLM.int8().
#include <nlohmann/json.hpp>

#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

using nlohmann::json;

constexpr int64_t most_state_bytes = 1 << 16;

/// What the checkpoint says of a matrix beside its codes: bytes of JSON in a tensor.
struct State {
  std::string name;
  int64_t rows = 0, columns = 0, block = 0, scale_block = 0;  ///< scale_block 0: scales are not quantised
  float scale_offset = 0;
  std::optional<DType> dtype;
};

int64_t size_at(const Assembly& assembly, const json& value, const std::string& key, const std::string& name) {
  const auto found = value.find(key);
  constexpr int64_t most = int64_t{1} << 30;
  if (found == value.end() || !found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > most)
    assembly.refuse(name, "has no \"" + key + "\" from 1 to " + std::to_string(most) +
                              "; write the checkpoint again with bitsandbytes");
  return found->get<int64_t>();
}

State read_state(Assembly& assembly, const Part& part) {
  State state{.name = part.info.name};
  assembly.expect_type(part, {"U8"});
  if (part.info.bytes > most_state_bytes)
    assembly.refuse(state.name, "has " + std::to_string(part.info.bytes) + " bytes, expected JSON of at most " +
                                    std::to_string(most_state_bytes));
  std::string text(static_cast<size_t>(part.info.bytes), '\0');
  const Strip whole{0, 1, part.info.bytes, part.info.bytes};
  assembly.read()(part.info, {&whole, 1}, std::as_writable_bytes(std::span(text)));
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) assembly.refuse(state.name, "is not a JSON object, expected what bitsandbytes writes");
  const auto shape = value.find("shape");
  if (shape == value.end() || !shape->is_array() || shape->size() != 2 || !(*shape)[0].is_number_integer() ||
      !(*shape)[1].is_number_integer())
    assembly.refuse(state.name, "has no \"shape\" [out, in], expected that of a matrix");
  state.rows = (*shape)[0], state.columns = (*shape)[1];
  state.block = size_at(assembly, value, "blocksize", state.name);
  if (const auto dtype = value.find("dtype"); dtype != value.end())
    state.dtype = *dtype == "float16" ? DType::F16 : *dtype == "bfloat16" ? DType::BF16 : DType::F32;
  if (value.contains("nested_blocksize")) {
    state.scale_block = size_at(assembly, value, "nested_blocksize", state.name);
    const auto offset = value.find("nested_offset");
    if (offset == value.end() || !offset->is_number())
      assembly.refuse(state.name, "has no \"nested_offset\", without which its scales are not known");
    state.scale_offset = offset->get<float>();
  }
  return state;
}

/// Takes a table of F32 numbers.
TensorInfo take_table(Assembly& assembly, const std::string& name, int64_t numbers, const std::string& of) {
  const Part part = assembly.take(name, of);
  assembly.expect_type(part, {"F32"});
  assembly.expect_shape(part, {numbers});
  return part.info;
}

/// Adds a matrix of 4-bit codes, two in a byte with the first in its upper half, in blocks that go on from row to row.
void add_four_bits(Assembly& assembly, const std::string& name) {
  const std::string prefix = name + ".quant_state.bitsandbytes__";
  const State state = read_state(assembly, assembly.take_any({prefix + "nf4", prefix + "fp4"}, name));
  const Part codes = assembly.take(name, name);
  int64_t elements = 0;
  if (state.rows < 1 || state.columns < 1 || __builtin_mul_overflow(state.rows, state.columns, &elements))
    assembly.refuse(state.name,
                    "has the shape " + shape_text({state.rows, state.columns}) + ", expected that of a matrix");
  if (codes.info.bytes != elements / 2 || elements % 2)
    assembly.refuse(name, "has " + std::to_string(codes.info.bytes) + " bytes, expected " +
                              std::to_string(elements / 2) + " of " + shape_text({state.rows, state.columns}) +
                              " codes of 4 bits");
  if (state.columns % state.block || state.columns % 2)
    assembly.refuse(name, "has rows of " + std::to_string(state.columns) + " inputs in blocks of " +
                              std::to_string(state.block) + ", of which some go on in the next row; expected whole " +
                              "blocks. Load it with transformers, and save model.dequantize()");
  const Part scale = assembly.take(name + ".absmax", name);
  const int64_t blocks = elements / state.block;
  assembly.expect_shape(scale, {blocks});
  ScaledCodes packed;
  packed.codes = {.stored = codes.info,
                  .rows = state.rows,
                  .columns = state.columns,
                  .bits = 4,
                  .packing = CodeMatrix::Packing::HighFirst,
                  .number = CodeMatrix::Number::Listed,
                  .list = take_table(assembly, name + ".quant_map", 16, name)};
  packed.scale = {.stored = scale.info, .rows = state.rows, .columns = state.columns / state.block};
  if (state.scale_block > 0) {
    assembly.expect_type(scale, {"U8"});
    packed.scale.codes =
        ScaleMatrix::Codes{.list = take_table(assembly, name + ".nested_quant_map", 256, name),
                           .scale = take_table(assembly, name + ".nested_absmax",
                                               (blocks + state.scale_block - 1) / state.scale_block, name),
                           .block = state.scale_block,
                           .offset = state.scale_offset};
  } else {
    assembly.expect_type(scale, {"F32"});
  }
  packed.block_columns = state.block;
  packed.rounded = state.dtype;
  assembly.add(name, {state.rows, state.columns}, std::move(packed));
}

/// Adds a matrix of LLM.int8(): a row is its codes times its largest magnitude / 127.
void add_int8(Assembly& assembly, const std::string& name, const std::string& module) {
  const Part codes = assembly.take(name, name), scale = assembly.take(module + ".SCB", name);
  assembly.expect_type(scale, {"F32"});
  assembly.expect_matrix(codes, "a matrix [out, in]");
  assembly.expect_shape(scale, {codes.info.shape[0]});
  if (const auto format = assembly.find(module + ".weight_format")) {
    uint8_t layout = 0;
    const Strip whole{0, 1, 1, 1};
    if (format->info.bytes == 1)
      assembly.read()(format->info, {&whole, 1}, std::as_writable_bytes(std::span(&layout, 1)));
    if (format->info.bytes != 1 || layout != 0)
      assembly.refuse(format->info.name, "is " + std::to_string(layout) +
                                             ", expected 0: rows. Write the checkpoint again with bitsandbytes 0.45 or "
                                             "newer");
    assembly.drop({module + ".weight_format"});
  }
  ScaledCodes packed;
  packed.codes = {.stored = codes.info,
                  .rows = codes.info.shape[0],
                  .columns = codes.info.shape[1],
                  .number = CodeMatrix::Number::TwosComplement};
  packed.scale = {.stored = scale.info, .rows = packed.codes.rows, .divisor = 127};
  packed.block_columns = packed.codes.columns;
  assembly.add(name, codes.info.shape, std::move(packed));
}

}  // namespace

void assemble_bitsandbytes(Assembly& assembly) {
  constexpr std::string_view plain = ".weight";
  for (const std::string& name : assembly.names(plain)) {
    const std::string type = assembly.find(name)->type;
    if (type == "U8") add_four_bits(assembly, name);
    if (type == "I8") add_int8(assembly, name, name.substr(0, name.size() - plain.size()));
  }
}

}  // namespace pm::checkpoint
