// SPDX-License-Identifier: Apache-2.0
// A dense host tensor without torch. The server, the engine's queue and the step message pass named tensors in it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace pm {

/// A row-major tensor with as many values as the product of `shape`.
struct Array {
  std::vector<int64_t> shape;
  std::variant<std::vector<int64_t>, std::vector<float>> values;
  bool operator==(const Array&) const = default;
};

/// Tensors by Hugging Face's names: input_ids, attention_mask, logits, hidden_states.0, ...
using Arrays = std::map<std::string, Array>;

}  // namespace pm
