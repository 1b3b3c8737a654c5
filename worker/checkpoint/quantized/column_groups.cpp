// SPDX-License-Identifier: Apache-2.0
// GPTQ and AWQ: matrices [in, out] of codes with a scale and a zero point for each output of a group of inputs. The
// value of a weight is scale * (code - zero point); the dense matrix is [out, in].
#include <algorithm>

#include "worker/checkpoint/quantized/assembly.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t word_bits = 32;

int64_t integer(const Assembly& assembly, std::string_view key) {
  const nlohmann::json& settings = assembly.quantization();
  const auto found = settings.find(key);
  if (found == settings.end() || !found->is_number_integer())
    assembly.refuse_config("has no whole number \"" + std::string(key) + "\"");
  return found->get<int64_t>();
}

std::string text(const Assembly& assembly, std::string_view key, const std::string& usual) {
  const nlohmann::json& settings = assembly.quantization();
  const auto found = settings.find(key);
  return found != settings.end() && found->is_string() ? found->get<std::string>() : usual;
}

bool is_set(const Assembly& assembly, std::string_view key) {
  const nlohmann::json& settings = assembly.quantization();
  const auto found = settings.find(key);
  return found != settings.end() && found->is_boolean() && found->get<bool>();
}

/// Fills in what both formats have: scales and zero points of groups of inputs, and adds the matrix.
void add_matrix(Assembly& assembly, const std::string& module, ScaledCodes packed, float first_zero) {
  const std::string name = module + ".qweight";
  const int64_t in = packed.codes.rows, out = packed.codes.columns, bits = packed.codes.bits,
                stated = integer(assembly, "group_size"), group = stated == -1 ? in : stated;
  if (group < 1)
    assembly.refuse_config("has the group_size " + std::to_string(stated) + ", expected -1 or a number from 1");
  const int64_t groups = (in + group - 1) / group;
  const Part scales = assembly.take(module + ".scales", name), zeros = assembly.take(module + ".qzeros", name);
  assembly.expect_type(scales, {"F16", "BF16", "F32"});
  assembly.expect_type(zeros, {"I32"});
  assembly.expect_shape(scales, {groups, out});
  assembly.expect_shape(zeros, {groups, (out * bits + word_bits - 1) / word_bits});
  packed.scale = assembly.scales(scales, groups, out);
  packed.block_rows = group;
  packed.zero = CodeMatrix{
      .stored = zeros.info, .rows = groups, .columns = out, .bits = packed.codes.bits, .first_value = first_zero};
  if (packed.codes.packing == CodeMatrix::Packing::Interleaved) packed.zero->packing = packed.codes.packing;
  packed.transposed = true;
  assembly.add(module + ".weight", {out, in}, std::move(packed));
}

/// Takes the codes of a module. Its name is without ".qweight".
Part take_codes(Assembly& assembly, const std::string& module) {
  const std::string name = module + ".qweight";
  Part codes = assembly.take(name, name);
  assembly.expect_type(codes, {"I32"});
  assembly.expect_matrix(codes, "a matrix of words");
  return codes;
}

std::vector<std::string> modules(const Assembly& assembly) {
  constexpr std::string_view ending = ".qweight";
  std::vector<std::string> names = assembly.names(ending);
  for (std::string& name : names) name.resize(name.size() - ending.size());
  return names;
}

}  // namespace

void assemble_gptq(Assembly& assembly) {
  const int64_t bits = integer(assembly, "bits");
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    assembly.refuse_config("has " + std::to_string(bits) + " bits, expected 2, 3, 4 or 8");
  const std::string format = text(assembly, "checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    assembly.refuse_config("has the checkpoint_format \"" + format + "\", expected gptq or gptq_v2");
  if (assembly.quantization().contains("dynamic") && !assembly.quantization()["dynamic"].empty())
    assembly.refuse_config("has settings for single modules (\"dynamic\"), which are not supported");
  for (const std::string& module : modules(assembly)) {
    const Part codes = take_codes(assembly, module);
    const int64_t words = codes.info.shape[0];
    if (words * word_bits % bits)
      assembly.refuse(codes.info.name, "has " + std::to_string(words) +
                                           " rows of words, expected rows that hold whole "
                                           "codes of " +
                                           std::to_string(bits) + " bits");
    ScaledCodes packed;
    packed.codes = {.stored = codes.info,
                    .rows = words * word_bits / bits,
                    .columns = codes.info.shape[1],
                    .bits = static_cast<int>(bits),
                    .packing = CodeMatrix::Packing::AlongRows};
    const std::string index = module + ".g_idx";
    if (assembly.find(index) || is_set(assembly, "desc_act")) {
      const Part groups = assembly.take(index, codes.info.name);
      assembly.expect_type(groups, {"I32", "I64"});
      assembly.expect_shape(groups, {packed.codes.rows});
      packed.groups = groups.info;
      packed.groups_of_rows = true;
    }
    add_matrix(assembly, module, std::move(packed), format == "gptq" ? 1 : 0);
  }
}

void assemble_awq(Assembly& assembly) {
  if (const int64_t bits = integer(assembly, "bits"); bits != 4)
    assembly.refuse_config("has " + std::to_string(bits) + " bits, expected 4");
  const std::string version = text(assembly, "version", "gemm");
  std::string lower = version;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower != "gemm") assembly.refuse_config("has the version \"" + version + "\", expected gemm");
  for (const std::string& module : modules(assembly)) {
    const Part codes = take_codes(assembly, module);
    ScaledCodes packed;
    packed.codes = {.stored = codes.info,
                    .rows = codes.info.shape[0],
                    .columns = codes.info.shape[1] * 8,
                    .bits = 4,
                    .packing = CodeMatrix::Packing::Interleaved};
    add_matrix(assembly, module, std::move(packed), 0);
  }
}

}  // namespace pm::checkpoint
