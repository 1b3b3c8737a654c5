// SPDX-License-Identifier: Apache-2.0
// Tables of policies/gguf: how config.json and the tensors of transformers follow from a GGUF file of an architecture.
// docs/reference/policies.md describes their keys.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/checkpoint/gguf/gguf_header.h"

namespace pm::checkpoint {

/// A table as it is embedded in the program.
struct GgufTable {
  std::string_view name, text;
};
std::span<const GgufTable> gguf_tables();

/// What the module of a tensor is called, and how its elements follow from those in the file.
struct GgufTarget {
  std::string name;         ///< of transformers; "{e}" stands for the expert, along the first dimension
  int64_t pair_heads = 0;   ///< the rows of each of so many heads have rotary halves as pairs; 0: rows are in order
  float addend = 0;         ///< which is added to every element of a weight
  bool one_row = false;     ///< a list is a matrix of one row
  bool transposed = false;  ///< a matrix is [in, out] in the module
};

/// The table of a file's architecture.
class GgufArchitecture {
 public:
  /// Takes the table for metadata's general.architecture. Throws Error{UnknownArchitecture} where there is none, with
  /// those that there are; `file` is the name of the file in errors.
  GgufArchitecture(const nlohmann::json& metadata, const std::string& file);
  /// Returns config.json. Throws Error{ModelUnreadable} for a key that the file lacks.
  nlohmann::json config(const std::vector<GgufTensor>&) const;
  /// Returns the target of a tensor; nothing for one that is not read. Throws Error{ModelUnreadable} for a tensor that
  /// the table does not know.
  std::optional<GgufTarget> target(const std::string& tensor) const;
  /// Returns the value of `{architecture}.key` in the metadata, or null.
  nlohmann::json value(std::string_view key) const;

 private:
  [[noreturn]] void refuse(const std::string& what) const;
  nlohmann::json evaluate(std::string_view expression, const std::vector<GgufTensor>&) const;
  nlohmann::json atom(std::string_view text, const std::vector<GgufTensor>&) const;
  nlohmann::json entry(const nlohmann::json& value, const std::vector<GgufTensor>&) const;
  const nlohmann::json& metadata_;
  const std::string file_;
  std::string architecture_, table_;  ///< the name of the architecture, and of the table
  nlohmann::json json_;               ///< the table
};

}  // namespace pm::checkpoint
