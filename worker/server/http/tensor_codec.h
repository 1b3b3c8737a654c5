// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes named tensors as nested JSON lists and as safetensors.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "worker/base/array.h"

namespace pm::server {

/// Parses nested lists of numbers of one shape. The tensor holds floats when a number has a fraction or `floats` is
/// true, else integers. Throws ApiError 400 that names the wrong list.
Array parse_json_tensor(const nlohmann::json& value, const std::string& name, bool floats);
/// Appends a JSON array. A float is written as the shortest text that parses to the same value; NaN and infinities,
/// which JSON lacks, become null.
void append_json(std::string& to, std::span<const float> values);
void append_json(std::string& to, std::span<const int64_t> values);

/// Appends {"dtype": "float32", "shape": [...], "data": nested lists}.
void append_json(std::string& to, const Array& array);

/// Parses a safetensors file. F32 and F64 become floats; I64, I32, I16, U8 and BOOL become integers. Throws ApiError
/// 400 that says why the file is invalid.
Arrays from_safetensors(std::string_view file);
/// Writes a safetensors file with the tensors in alphabetical order, as F32 and I64.
std::string to_safetensors(const Arrays& arrays);

}  // namespace pm::server
