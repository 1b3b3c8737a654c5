// Named tensors on the wire: nested JSON lists, and safetensors.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "worker/base/array.h"

namespace pm::server {

/// Nested lists of numbers, all of one shape; floats when any number has a fraction or `floats`. Throws ApiError 400 that names the list at
/// fault ("input_ids[1] has 3 entries, input_ids[0] has 4").
Array array_of_json(const nlohmann::json& value, const std::string& name, bool floats);
/// Appends {"dtype": "float32", "shape": [...], "data": nested lists}.
void append_json(std::string& to, const Array& array);

/// A safetensors file: F32, F64 become floats, I64, I32, I16, U8, BOOL integers. Throws ApiError 400 that says what is wrong with it.
Arrays from_safetensors(std::string_view file);
/// In alphabetical order, F32 and I64.
std::string to_safetensors(const Arrays& arrays);

}  // namespace pm::server
