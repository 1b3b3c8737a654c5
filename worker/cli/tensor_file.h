// SPDX-License-Identifier: Apache-2.0
// Reads and writes named tensors in a safetensors file: the inputs and outputs of `forward`.
#pragma once
#include <filesystem>

#include "worker/base/array.h"

namespace pm::cli {

/// Reads all tensors; integers of any width become int64 and floats fp32. Throws Error{InputUnreadable} that
/// names the file and what is wrong.
Arrays read_tensors(const std::filesystem::path&);
/// Writes the tensors in alphabetical order. The file is renamed into place, so that it is never partial.
void write_tensors(const std::filesystem::path&, const Arrays&);

}  // namespace pm::cli
