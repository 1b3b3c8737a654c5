// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/quantized/assembly.h"

#include <algorithm>
#include <memory>

#include "worker/base/error.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

std::optional<DType> float_type(const nlohmann::json& config, std::string_view key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_string()) return std::nullopt;
  std::string name = found->get<std::string>();
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "bfloat16") return DType::BF16;
  if (name == "float16" || name == "half") return DType::F16;
  if (name == "float32" || name == "float") return DType::F32;
  return std::nullopt;
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::optional<int64_t> block_size(int64_t size, int64_t blocks, int64_t stated) {
  if (size < 1 || blocks < 1) return std::nullopt;
  if (stated > 0 && (size - 1) / stated + 1 == blocks) return stated;
  if (size % blocks) return std::nullopt;
  return size / blocks;
}

Assembly::Assembly(const std::filesystem::path& folder, const nlohmann::json& config,
                   const nlohmann::json& quantization, TensorTable& tensors, UnsupportedTable& unsupported,
                   const ReadStored& read)
    : folder_(folder),
      config_(config),
      quantization_(quantization),
      tensors_(tensors),
      unsupported_(unsupported),
      read_(read),
      dense_type_(find_dense_type()) {}

std::vector<std::string> Assembly::names(std::string_view ending) const {
  std::vector<std::string> names;
  for (const auto& [name, info] : tensors_)
    if (name.ends_with(ending)) names.push_back(name);
  for (const auto& [name, tensor] : unsupported_)
    if (name.ends_with(ending)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<Part> Assembly::find(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end())
    return Part{std::string(name_of(found->second.dtype)), found->second};
  if (const auto found = unsupported_.find(name); found != unsupported_.end())
    return Part{found->second.type, found->second.bytes};
  return std::nullopt;
}

Part Assembly::take(const std::string& name, const std::string& of) { return take_any({name}, of); }

Part Assembly::take_any(std::initializer_list<std::string> names, const std::string& of) {
  for (const std::string& name : names) {
    std::optional<Part> part = find(name);
    if (!part) continue;
    if (!used_.insert(name).second) refuse(name, "belongs to two matrices, expected one");
    return *part;
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "\"" : " or \"") + name + "\"";
  refuse(of, "is quantised, but the checkpoint has no " + all +
                 ", without which its values are not known; copy all files of the checkpoint");
}

void Assembly::drop(std::initializer_list<std::string> names) {
  for (const std::string& name : names)
    if (tensors_.contains(name) || unsupported_.contains(name)) used_.insert(name);
}

void Assembly::drop_all(std::initializer_list<std::string_view> endings) {
  for (const std::string_view ending : endings)
    for (const std::string& name : names(ending)) used_.insert(name);
}

void Assembly::refuse(const std::string& tensor, const std::string& what) const {
  throw Error(Reason::ModelUnreadable, printable(folder_.string() + ": tensor \"" + tensor + "\" " + what));
}

void Assembly::refuse_config(const std::string& what) const {
  throw Error(Reason::ModelUnreadable,
              printable((folder_ / "config.json").string() + ": the quantization_config " + what +
                        "; give the checkpoint that it was made from, or a copy in 16 bits"));
}

void Assembly::expect_type(const Part& part, std::initializer_list<std::string_view> types) const {
  if (std::find(types.begin(), types.end(), part.type) != types.end()) return;
  std::string all;
  for (const std::string_view type : types) all += (all.empty() ? "" : " or ") + std::string(type);
  refuse(part.info.name, "has the element type " + part.type + ", expected " + all);
}

void Assembly::expect_shape(const Part& part, const std::vector<int64_t>& shape) const {
  if (part.info.shape != shape)
    refuse(part.info.name, "has shape " + shape_text(part.info.shape) + ", expected " + shape_text(shape));
}

void Assembly::expect_matrix(const Part& part, const std::string& what) const {
  if (part.info.shape.size() != 2 || part.info.bytes == 0)
    refuse(part.info.name, "has shape " + shape_text(part.info.shape) + ", expected " + what);
}

ScaleMatrix Assembly::scales(const Part& part, int64_t rows, int64_t columns, bool each) const {
  expect_type(part, {"F32", "F16", "BF16", "F8_E4M3", "F8_E8M0", "U8"});
  const ByteValues* table = part.type == "F8_E4M3"   ? &e4m3_values()
                            : part.type == "F8_E8M0" ? &e8m0_values()
                            : part.type == "U8"      ? &exponent_values()
                                                     : nullptr;
  return {part.info, table, rows, columns, each};
}

void Assembly::add(const std::string& name, const std::vector<int64_t>& shape, ScaledCodes packed) {
  if (dense_.contains(name)) refuse(name, "is stored twice, expected one form of it");
  int64_t elements = 1, bytes = 0;
  for (const int64_t size : shape)
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements))
      refuse(name, "has shape " + shape_text(shape) + ", expected sizes from 1 whose product is below 2^63");
  packed.dtype = dense_type_;
  if (__builtin_mul_overflow(elements, size_of(packed.dtype), &bytes))
    refuse(name, "has shape " + shape_text(shape) + ", which is larger than 2^63 bytes");
  if (packed.rounded == packed.dtype || packed.rounded == DType::F32) packed.rounded.reset();
  if (!packed.codes.stored.strides.empty())
    refuse(packed.codes.stored.name, "is not row-major in its file; save the checkpoint as safetensors");
  TensorInfo info{.name = name,
                  .dtype = packed.dtype,
                  .shape = shape,
                  .file = packed.codes.stored.file,
                  .offset = packed.codes.stored.offset,
                  .bytes = bytes};
  info.packed = std::make_shared<const ScaledCodes>(std::move(packed));
  dense_[name] = std::move(info);
}

/// Returns config.json's dtype; without one that of the first stored tensor that is no part of a matrix, as
/// transformers takes it.
DType Assembly::find_dense_type() const {
  const auto text = config_.find("text_config");
  for (const nlohmann::json* section : {&config_, text != config_.end() && text->is_object() ? &*text : &config_})
    for (const char* key : {"dtype", "torch_dtype"})
      if (const auto type = float_type(*section, key)) return *type;
  for (const auto& [name, info] : tensors_)
    if (name.find("scale") == std::string::npos &&
        (info.dtype == DType::BF16 || info.dtype == DType::F16 || info.dtype == DType::F32))
      return info.dtype;
  return DType::BF16;
}

void Assembly::finish() {
  for (const std::string& name : used_) {
    tensors_.erase(name);
    unsupported_.erase(name);
  }
  for (auto& [name, info] : dense_) {
    if (tensors_.contains(name) || unsupported_.contains(name))
      refuse(name, "is stored as it is and as codes, expected one form of it");
    tensors_[name] = std::move(info);
  }
}

void add_nvfp4(Assembly& assembly, const std::string& module, const Nvfp4Parts& parts) {
  constexpr int64_t group = 16;
  const std::string name = module + parts.codes;
  const Part codes = assembly.take(name, name), scale = assembly.take(module + parts.scale, name),
             global = assembly.take(module + parts.global, name);
  assembly.expect_type(codes, {"U8"});
  assembly.expect_type(scale, {"F8_E4M3"});
  assembly.expect_type(global, {"F32"});
  assembly.expect_matrix(codes, "[out, in / 2] with whole groups of 16");
  if (codes.info.shape[1] % (group / 2))
    assembly.refuse(name, "has shape " + shape_text(codes.info.shape) + ", expected whole groups of 16 inputs");
  if (global.info.bytes != size_of(DType::F32))
    assembly.refuse(global.info.name, "has shape " + shape_text(global.info.shape) + ", expected one number");
  const int64_t out = codes.info.shape[0], in = 2 * codes.info.shape[1];
  assembly.expect_shape(scale, {out, in / group});
  ScaledCodes packed;
  packed.codes = {.stored = codes.info, .rows = out, .columns = in, .bits = 4, .number = CodeMatrix::Number::E2M1};
  packed.scale = assembly.scales(scale, out, in / group);
  packed.block_columns = group;
  packed.global = global.info;
  packed.divide_by_global = parts.divide_by_global;
  packed.rounded = parts.rounded;
  assembly.add(module + ".weight", {out, in}, std::move(packed));
}

}  // namespace pm::checkpoint
