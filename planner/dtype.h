// SPDX-License-Identifier: Apache-2.0
// Element types of checkpoints and plans, with their sizes and the names that safetensors gives them.
#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace pm {

/// I4 and I8A8 are precisions only, no tensor of a checkpoint has them: codes of four bits, two in a byte; and codes of
/// eight bits with a scale for each row, which multiply activations that are rounded to eight bits.
enum class DType : uint8_t { F32, F16, BF16, F64, I8, U8, Bool, I16, I32, I64, I4, I8A8 };

/// Returns true for the precisions that hold matrices as integer codes with scales.
constexpr bool is_quantized(DType precision) {
  return precision == DType::I8 || precision == DType::I4 || precision == DType::I8A8;
}

/// Bytes of one element. Throws std::logic_error for I4, whose codes share bytes, and I8A8, which no tensor has.
constexpr int64_t size_of(DType type) {
  switch (type) {
    case DType::F64:
    case DType::I64:
      return 8;
    case DType::F32:
    case DType::I32:
      return 4;
    case DType::F16:
    case DType::BF16:
    case DType::I16:
      return 2;
    case DType::I8:
    case DType::U8:
    case DType::Bool:
      return 1;
    case DType::I4:
    case DType::I8A8:
      throw std::logic_error("the size of one code of I4 or I8A8 is asked for; codes come in groups");
  }
  return 0;
}

/// The name in a safetensors header, which is also the spelling of spec.precision: F32, BF16, BOOL, ...
constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::F32:
      return "F32";
    case DType::F16:
      return "F16";
    case DType::BF16:
      return "BF16";
    case DType::F64:
      return "F64";
    case DType::I8:
      return "I8";
    case DType::U8:
      return "U8";
    case DType::Bool:
      return "BOOL";
    case DType::I16:
      return "I16";
    case DType::I32:
      return "I32";
    case DType::I64:
      return "I64";
    case DType::I4:
      return "I4";
    case DType::I8A8:
      return "I8A8";
  }
  return "?";
}

/// The inverse of name_of for the types of tensors; nothing for a name that we do not serve (F8_E4M3, U16, ...).
constexpr std::optional<DType> dtype_of(std::string_view name) {
  for (DType type : {DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::U8, DType::Bool, DType::I16,
                     DType::I32, DType::I64})
    if (name_of(type) == name) return type;
  return std::nullopt;
}

/// The precisions of a plan, as spec.precision and --precision spell them.
constexpr DType precisions[] = {DType::F32, DType::F16, DType::BF16, DType::I8, DType::I4, DType::I8A8};
/// Returns the precision of that name; nothing for another name.
constexpr std::optional<DType> precision_of(std::string_view name) {
  for (DType type : precisions)
    if (name_of(type) == name) return type;
  return std::nullopt;
}

/// The same for what a KV cache may hold in place of the type in which the model computes, as spec.kvPrecision and
/// --kv-precision spell it.
constexpr std::optional<DType> kv_precision_of(std::string_view name) {
  if (name == name_of(DType::I8)) return DType::I8;
  return std::nullopt;
}

}  // namespace pm
