// SPDX-License-Identifier: Apache-2.0
// The few tensors of a module beside the model, which the server itself computes with.
#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace pm::server {

/// Reads tensors as fp32. Each has to be read, once. Its functions throw Error{ModelUnreadable} with the file and the
/// tensor, what was found and what was expected.
class ModuleWeights {
 public:
  /// Opens a folder with a config.json and weights, as of a model.
  static ModuleWeights of_folder(const std::filesystem::path& folder);
  /// Opens one file that torch.save has written.
  static ModuleWeights of_torch_file(const std::filesystem::path& file);

  /// Returns a tensor of this shape, F32, F16 or BF16.
  std::vector<float> read(const std::string& name, const std::vector<int64_t>& shape);
  /// Returns a matrix that is stored [outputs, inputs] as [inputs, outputs].
  std::vector<float> read_matrix(const std::string& name, size_t inputs, size_t outputs);
  /// Throws if tensors are left that nothing has read.
  void end() const;

 private:
  using Reader = std::function<void(const checkpoint::TensorInfo&, std::span<std::byte>)>;
  ModuleWeights(std::string name, checkpoint::Header header, Reader read)
      : name_(std::move(name)), header_(std::move(header)), read_(std::move(read)) {}

  std::string name_;
  checkpoint::Header header_;
  Reader read_;
  size_t taken_ = 0;
};

}  // namespace pm::server
