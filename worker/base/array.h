// A dense tensor without torch: what the server, the engine's queue and the step message call a named tensor.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace pm {

/// Row-major. Its values are as many as the product of `shape`.
struct Array {
  std::vector<int64_t> shape;
  std::variant<std::vector<int64_t>, std::vector<float>> values;
  bool operator==(const Array&) const = default;
};

/// By Hugging Face's name: input_ids, attention_mask, logits, hidden_states.0, ...
using Arrays = std::map<std::string, Array>;

}  // namespace pm
