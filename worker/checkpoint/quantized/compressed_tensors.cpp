// SPDX-License-Identifier: Apache-2.0
// compressed-tensors: integers of 1 to 8 bits in words (pack-quantized), F8_E4M3 or I8 with scales (float-quantized,
// int-quantized), and FP4 with two levels of scales (nvfp4-pack-quantized). Which matrices are quantised, and how, is
// read from the stored tensors; each has to fit one of the config_groups.
#include <algorithm>
#include <array>

#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

using nlohmann::json;

/// `weights` of one of the config_groups.
struct Scheme {
  int64_t bits = 0;
  bool integers = true, symmetric = true;
  std::string strategy;
  int64_t group_size = 0, block_rows = 0, block_columns = 0;
};

constexpr std::array<std::string_view, 7> formats{"pack-quantized",      "float-quantized", "int-quantized",
                                                  "naive-quantized",     "dense",           "mixed-precision",
                                                  "nvfp4-pack-quantized"};

void check_format(const Assembly& assembly, const json& section) {
  const auto format = section.find("format");
  if (format == section.end() || format->is_null()) return;
  if (!format->is_string() || std::find(formats.begin(), formats.end(), format->get<std::string>()) == formats.end())
    assembly.refuse_config("has the format " + format->dump() + ", which is not supported");
}

int64_t integer(const json& section, std::string_view key) {
  const auto found = section.find(key);
  return found != section.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::vector<Scheme> read_schemes(const Assembly& assembly) {
  const json& settings = assembly.quantization();
  check_format(assembly, settings);
  for (const char* key : {"sparsity_config", "transform_config"})
    if (const auto found = settings.find(key); found != settings.end() && !found->empty())
      assembly.refuse_config("has a " + std::string(key) + ", which is not supported");
  const auto groups = settings.find("config_groups");
  if (groups == settings.end() || !groups->is_object()) assembly.refuse_config("has no object \"config_groups\"");
  std::vector<Scheme> schemes;
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) assembly.refuse_config("names the preset \"" + name + "\", expected its settings");
    check_format(assembly, group);
    const auto weights = group.find("weights");
    if (weights == group.end() || !weights->is_object()) continue;  // only activations
    Scheme scheme{.bits = integer(*weights, "num_bits"), .group_size = integer(*weights, "group_size")};
    if (const auto type = weights->find("type"); type != weights->end()) scheme.integers = *type != "float";
    if (const auto even = weights->find("symmetric"); even != weights->end() && even->is_boolean())
      scheme.symmetric = even->get<bool>();
    if (const auto strategy = weights->find("strategy"); strategy != weights->end() && strategy->is_string())
      scheme.strategy = strategy->get<std::string>();
    else
      scheme.strategy = scheme.group_size > 0 ? "group" : scheme.group_size < 0 ? "channel" : "tensor";
    if (const auto block = weights->find("block_structure"); block != weights->end() && block->is_array() &&
                                                             block->size() == 2 && (*block)[0].is_number_integer() &&
                                                             (*block)[1].is_number_integer())
      scheme.block_rows = (*block)[0].get<int64_t>(), scheme.block_columns = (*block)[1].get<int64_t>();
    schemes.push_back(scheme);
  }
  return schemes;
}

/// The rows and columns of a matrix that share a scale.
struct Blocks {
  int64_t rows = 0, columns = 0;
};

/// Returns the blocks of a scheme, where scales of `grid` are those of a matrix [rows, columns] by it.
std::optional<Blocks> blocks_of(const Scheme& scheme, int64_t rows, int64_t columns, const std::vector<int64_t>& grid) {
  const auto is = [&](int64_t down, int64_t across) {
    return grid == std::vector{down, across} || (across == 1 && grid == std::vector{down}) ||
           (down == 1 && across == 1 && grid.empty());
  };
  if (scheme.strategy == "tensor" && is(1, 1)) return Blocks{rows, columns};
  if (scheme.strategy == "channel" && is(rows, 1)) return Blocks{1, columns};
  if ((scheme.strategy == "group" || scheme.strategy == "tensor_group") && scheme.group_size > 0 &&
      columns % scheme.group_size == 0 && is(rows, columns / scheme.group_size))
    return Blocks{1, scheme.group_size};
  if (scheme.strategy == "block" && scheme.block_rows > 0 && scheme.block_columns > 0 &&
      is((rows - 1) / scheme.block_rows + 1, (columns - 1) / scheme.block_columns + 1))
    return Blocks{scheme.block_rows, scheme.block_columns};
  return std::nullopt;
}

[[noreturn]] void refuse_scheme(const Assembly& assembly, const Part& codes, const Part& scale) {
  assembly.refuse(codes.info.name, "has shape " + shape_text(codes.info.shape) + " and scales of shape " +
                                       shape_text(scale.info.shape) + ", which fit none of the config_groups");
}

std::array<int64_t, 2> read_shape(const Assembly& assembly, const Part& part) {
  std::array<int64_t, 2> shape{};
  const Strip whole{0, 1, sizeof(shape), sizeof(shape)};
  assembly.read()(part.info, {&whole, 1}, std::as_writable_bytes(std::span(shape)));
  return shape;
}

void set_scales(const Assembly& assembly, const Part& scale, const Blocks& blocks, ScaledCodes& packed) {
  const auto count = [](int64_t size, int64_t block) { return (size - 1) / block + 1; };
  packed.scale =
      assembly.scales(scale, count(packed.codes.rows, blocks.rows), count(packed.codes.columns, blocks.columns));
  packed.block_rows = blocks.rows;
  packed.block_columns = blocks.columns;
  // products are made in the type of the scales
  if (scale.type == "F16" || scale.type == "BF16") packed.rounded = scale.info.dtype;
}

void add_packed(Assembly& assembly, const std::string& module, const std::vector<Scheme>& schemes) {
  const std::string name = module + ".weight_packed";
  const Part codes = assembly.take(name, name), scale = assembly.take(module + ".weight_scale", name),
             stated = assembly.take(module + ".weight_shape", name);
  assembly.expect_type(codes, {"I32"});
  assembly.expect_type(scale, {"F32", "F16", "BF16"});
  assembly.expect_type(stated, {"I64"});
  assembly.expect_shape(stated, {2});
  assembly.expect_matrix(codes, "a matrix of words");
  const int64_t out = codes.info.shape[0], words = codes.info.shape[1];
  const bool has_zero = assembly.find(module + ".weight_zero_point").has_value();
  std::optional<std::array<int64_t, 2>> shape;  // of the dense matrix, read only where the others do not tell
  const auto by_shape = [&] { return shape ? *shape : *(shape = read_shape(assembly, stated)); };
  struct Fit {
    Scheme scheme;
    int64_t in;
    Blocks blocks;
  };
  std::vector<Fit> fits;
  for (const Scheme& scheme : schemes) {
    if (!scheme.integers || scheme.bits < 1 || scheme.bits > 8) continue;
    const bool grouped = scheme.strategy == "group" && scheme.group_size > 0 && scale.info.shape.size() == 2;
    int64_t in = 0, width = 0;
    if (grouped ? __builtin_mul_overflow(scale.info.shape[1], scheme.group_size, &in) : (in = by_shape()[1], false))
      continue;
    if (in < 1 || __builtin_mul_overflow(in, scheme.bits, &width) || (width - 1) / 32 + 1 != words) continue;
    if (const auto blocks = blocks_of(scheme, out, in, scale.info.shape)) fits.push_back({scheme, in, *blocks});
  }
  const auto keep = [&](auto wanted) {
    if (fits.size() > 1 && std::any_of(fits.begin(), fits.end(), wanted))
      fits.erase(std::remove_if(fits.begin(), fits.end(), [&](const Fit& fit) { return !wanted(fit); }), fits.end());
  };
  keep([&](const Fit& fit) { return fit.scheme.symmetric != has_zero; });
  if (fits.size() > 1) keep([&](const Fit& fit) { return fit.in == by_shape()[1]; });
  if (fits.empty()) refuse_scheme(assembly, codes, scale);
  const Fit& fit = fits.front();
  if (fits.size() > 1 && (fits[1].scheme.bits != fit.scheme.bits || fits[1].in != fit.in))
    assembly.refuse(name, "fits several of the config_groups, expected one");

  ScaledCodes packed;
  packed.codes = {.stored = codes.info,
                  .rows = out,
                  .columns = fit.in,
                  .bits = static_cast<int>(fit.scheme.bits),
                  .first_value = -static_cast<float>(1 << (fit.scheme.bits - 1))};
  packed.dense_shape = stated.info;
  set_scales(assembly, scale, fit.blocks, packed);
  if (fit.scheme.symmetric && has_zero)
    assembly.refuse(module + ".weight_zero_point", "belongs to a symmetric matrix, expected none");
  if (!fit.scheme.symmetric) {
    const Part zero = assembly.take(module + ".weight_zero_point", name);
    const int64_t columns = packed.scale.columns, rows = packed.scale.rows;
    assembly.expect_type(zero, {"I32"});
    assembly.expect_shape(zero, {(rows * fit.scheme.bits + 31) / 32, columns});
    packed.zero = CodeMatrix{.stored = zero.info,
                             .rows = rows,
                             .columns = columns,
                             .bits = packed.codes.bits,
                             .packing = CodeMatrix::Packing::AlongRows,
                             .first_value = packed.codes.first_value};
  }
  if (assembly.find(module + ".weight_g_idx")) {
    const Part groups = assembly.take(module + ".weight_g_idx", name);
    assembly.expect_type(groups, {"I32", "I64"});
    assembly.expect_shape(groups, {fit.in});
    packed.groups = groups.info;
  }
  assembly.add(module + ".weight", {out, fit.in}, std::move(packed));
}

void add_bytes(Assembly& assembly, const std::string& module, const std::vector<Scheme>& schemes) {
  const std::string name = module + ".weight";
  const Part codes = assembly.take(name, name), scale = assembly.take(module + ".weight_scale", name);
  assembly.expect_type(scale, {"F32", "F16", "BF16"});
  assembly.expect_matrix(codes, "a quantised matrix");
  const bool integers = codes.type == "I8";
  const int64_t out = codes.info.shape[0], in = codes.info.shape[1];
  const std::string zero_name = module + ".weight_zero_point";
  const bool has_zero = assembly.find(zero_name).has_value();
  std::optional<Blocks> blocks;
  bool symmetric = true;
  for (const Scheme& scheme : schemes) {
    if (scheme.integers != integers || scheme.bits > 8 || (!integers && scheme.bits != 8)) continue;
    const auto fit = blocks_of(scheme, out, in, scale.info.shape);
    if (!fit || (blocks && scheme.symmetric == has_zero)) continue;
    blocks = fit;
    symmetric = scheme.symmetric;
  }
  if (!blocks) refuse_scheme(assembly, codes, scale);
  ScaledCodes packed;
  packed.codes = {.stored = codes.info,
                  .rows = out,
                  .columns = in,
                  .number = integers ? CodeMatrix::Number::TwosComplement : CodeMatrix::Number::E4M3};
  set_scales(assembly, scale, *blocks, packed);
  if (has_zero || !symmetric) {
    const Part zero = assembly.take(zero_name, name);
    assembly.expect_type(zero, {codes.type});
    assembly.expect_shape(zero, scale.info.shape);
    packed.zero = CodeMatrix{
        .stored = zero.info, .rows = packed.scale.rows, .columns = packed.scale.columns, .number = packed.codes.number};
  }
  assembly.add(name, {out, in}, std::move(packed));
}

}  // namespace

void assemble_compressed_tensors(Assembly& assembly) {
  const std::vector<Scheme> schemes = read_schemes(assembly);
  constexpr std::string_view packed = ".weight_packed", plain = ".weight";
  const Nvfp4Parts nvfp4{".weight_packed", ".weight_scale", ".weight_global_scale", true, DType::BF16};
  for (const std::string& name : assembly.names(packed)) {
    const std::string module = name.substr(0, name.size() - packed.size());
    assembly.find(name)->type == "U8" ? add_nvfp4(assembly, module, nvfp4) : add_packed(assembly, module, schemes);
  }
  for (const std::string& name : assembly.names(plain)) {
    const std::string type = assembly.find(name)->type;
    if (type == "F8_E4M3" || type == "I8") add_bytes(assembly, name.substr(0, name.size() - plain.size()), schemes);
  }
  assembly.drop_all({".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale", ".output_zero_point",
                     ".q_scale", ".k_scale", ".v_scale", ".k_zero_point", ".v_zero_point"});
}

}  // namespace pm::checkpoint
