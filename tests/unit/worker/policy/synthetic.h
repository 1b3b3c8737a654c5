// SPDX-License-Identifier: Apache-2.0
// Checkpoints that tests write: names and shapes with bytes that differ from tensor to tensor, or sparse files of
// full-size models.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::policy {

struct Synthetic {
  struct Tensor {
    std::vector<int64_t> shape;
    std::string dtype;
    std::string seed;
  };
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;
  std::string dtype = "F32";

  void add(const std::string& name, std::vector<int64_t> shape) { tensors[name] = {std::move(shape), dtype, name}; }
  /// `name` with the bytes of `other`.
  void copy(const std::string& name, const std::string& other) { tensors[name] = tensors.at(other); }
  void linear(const std::string& name, int64_t out, int64_t in, bool bias = true);
  void norm(const std::string& name, int64_t width);
  /// Writes config.json and model.safetensors; sparse: but for eight bytes of each tensor the data are zeros that take
  /// no room.
  void write(const checkpoint::Folder& folder, bool sparse = false) const;
};

/// GPT-2 with 5 heads of 4, 3 layers, 101 words.
Synthetic tiny_gpt2();
/// BERT with 5 heads of 4, 2 layers and a masked-language-model head.
Synthetic tiny_bert();

}  // namespace pm::policy
