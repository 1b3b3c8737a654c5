// Named tensors in one safetensors file: the inputs and outputs of `forward`.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace pm::cli {

using Tensors = std::map<std::string, at::Tensor>;

/// Throws Error{Request, "InputUnreadable"} that names the file and what is wrong.
Tensors read_tensors(const std::filesystem::path&);
/// Writes contiguous copies in alphabetical order; the file appears whole or not at all.
void write_tensors(const std::filesystem::path&, const Tensors&);

}  // namespace pm::cli
