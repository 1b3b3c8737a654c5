// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter as PEFT saves it: a folder with adapter_config.json and adapter_model.safetensors (or .bin). Opening
// reads the config and the header only.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

/// The two factors of what an adapter adds to one matrix W [out, in]: W x + scale * B (A x).
struct AdapterMatrix {
  TensorInfo a, b;   ///< [rank, in], [out, rank], F32, F16 or BF16
  double scale = 1;  ///< alpha / rank, with rslora alpha / sqrt(rank)

  int64_t rank() const { return a.shape[0]; }
};

/// A module that the adapter has whole, in place of the base model's (modules_to_save).
struct SavedModule {
  TensorInfo weight;               ///< [out, in], or a table [rows, width], F32, F16 or BF16
  std::optional<TensorInfo> bias;  ///< [out]
};

/// The two files of an adapter.
struct AdapterFiles {
  RandomAccessFile config, weights;
  bool torch = false;  ///< the weights are a .bin
};

/// An open adapter folder, immutable; read() may be called from several threads.
class AdapterFolder {
 public:
  /// Reads adapter_config.json and the tensor table. Everything that changes what the adapter computes and that this
  /// version does not do is refused by name: other methods than LoRA, DoRA, biases, trained tokens, target_parameters,
  /// and initialisations that change the base's weights. Every tensor is a factor of a matrix, and every matrix has
  /// both, or it is a weight or bias of a module that modules_to_save names. Throws Error{ModelUnreadable}.
  static AdapterFolder open(const std::filesystem::path& folder);
  /// The same with files that are open, or in memory; `folder` only names the adapter in errors.
  static AdapterFolder open(const std::filesystem::path& folder, AdapterFiles);

  const std::filesystem::path& folder() const { return folder_; }
  /// Returns the matrices by the names of their modules in PEFT's base model: "model.layers.0.self_attn.q_proj".
  const std::map<std::string, AdapterMatrix>& matrices() const { return matrices_; }
  /// Returns the modules that replace those of the base model, by the same names: "lm_head", "classifier.dense".
  const std::map<std::string, SavedModule>& saved() const { return saved_; }
  /// Returns whether modules_to_save names the module, or one that it is in, by the end of its name, as PEFT does:
  /// "classifier" is also "pre_classifier" and what is in it.
  bool saves(const std::string& module) const;
  /// Returns whether what is tied in the base model is tied in what the adapter saves (ensure_weight_tying): then it
  /// has heads that modules_to_save does not name.
  bool ties_saved() const { return ties_saved_; }
  /// Returns the largest rank.
  int64_t rank() const;
  /// The modules that target_modules lists, by the ends of their names; empty where it is an expression.
  const std::vector<std::string>& targets() const { return targets_; }
  /// Returns whether every module that ends as targets() say has to be adapted, for no option leaves some out.
  bool adapts_all_layers() const { return adapts_all_layers_; }
  /// Returns the elements of a tensor as floats. Throws Error{ModelUnreadable} for infinities and NaNs.
  std::vector<float> read(const TensorInfo& tensor) const { return read(tensor, 0, tensor.shape.at(0)); }
  /// The same of `count` rows of a matrix, or elements of a vector.
  std::vector<float> read(const TensorInfo&, int64_t first, int64_t count) const;

 private:
  std::filesystem::path folder_;
  RandomAccessFile file_;
  std::map<std::string, AdapterMatrix> matrices_;
  std::map<std::string, SavedModule> saved_;
  std::vector<std::string> targets_, saved_names_;  ///< of target_modules, of modules_to_save
  bool adapts_all_layers_ = false, ties_saved_ = false;
};

}  // namespace pm::checkpoint
