// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/sparse_embedding.h"

#include <set>

#include "worker/server/serving/folder_json.h"
#include "worker/server/serving/module_weights.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Reads the modules of a SparseEncoder: the model with its scores of the vocabulary, and SpladePooling. Returns
/// nothing for modules of another kind.
std::optional<SparseEmbedding> read_splade(const std::filesystem::path& folder, const std::string& scores) {
  static const std::set<std::string> models{"Transformer", "MLMTransformer"};
  const json modules = read_json_file(folder / "modules.json");
  if (!modules.is_array()) return std::nullopt;
  std::vector<std::string> kinds;
  std::string path;
  for (const json& module : modules) {
    const auto type = value_of<std::string>(module, "type", "");
    kinds.push_back(type.substr(type.rfind('.') + 1));
    if (kinds.back() == "SpladePooling") path = value_of<std::string>(module, "path", "");
  }
  if (kinds.empty() || kinds.back() != "SpladePooling") return std::nullopt;
  SparseEmbedding read{scores, {}, {}, {}};
  if (kinds.size() != 2 || !models.contains(kinds[0])) {
    read.refusal = "modules.json has the module " + kinds[0] + " before SpladePooling, which is not supported";
    return read;
  }
  const json config = read_json_file(module_folder(folder, path) / "config.json");
  const auto pooling = value_of<std::string>(config, "pooling_strategy", "max"),
             activation = value_of<std::string>(config, "activation_function", "relu");
  if ((pooling != "max" && pooling != "sum") || (activation != "relu" && activation != "log1p_relu"))
    read.refusal = path + "/config.json has the pooling_strategy " + pooling + " and the activation_function " +
                   activation + "; supported are max and sum, relu and log1p_relu";
  else
    read.splade = SpladePooling{pooling == "sum", activation == "log1p_relu"};
  return read;
}

}  // namespace

SparseEmbedding read_sparse_embedding(const std::filesystem::path& folder, const std::string& scores,
                                      const std::string& states, int64_t width) {
  if (!scores.empty())
    if (auto read = read_splade(folder, scores)) return *read;
  const auto file = folder / "sparse_linear.pt";
  if (states.empty() || !std::filesystem::exists(file)) return {};
  ModuleWeights weights = ModuleWeights::of_torch_file(file);
  TokenWeights read{weights.read("weight", {1, width}), weights.read("bias", {1})[0]};
  weights.end();
  return {states, {}, std::move(read), {}};
}

}  // namespace pm::server
