// Named tensors in one safetensors file: the inputs and outputs of `forward`.
#pragma once
#include <filesystem>

#include "worker/base/array.h"

namespace pm::cli {

/// Integers of any width become int64, floats fp32. Throws Error{Request, "InputUnreadable"} that names the file and what is wrong.
Arrays read_tensors(const std::filesystem::path&);
/// Writes them in alphabetical order; the file appears whole or not at all.
void write_tensors(const std::filesystem::path&, const Arrays&);

}  // namespace pm::cli
