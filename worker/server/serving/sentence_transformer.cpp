// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/sentence_transformer.h"

#include <algorithm>

#include "worker/server/serving/folder_json.h"
#include "worker/server/serving/module_weights.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// A module, or a setting of one, that is not supported.
struct Refusal {
  std::string text;
};

/// Returns the poolings of a Pooling module's configuration, in both spellings of sentence-transformers and in its
/// order. Flags of the older spelling come in a fixed order.
std::vector<Pooling> read_poolings(const json& config, const std::string& file) {
  struct Spelling {
    const char *flag, *word;
    Pooling pooling;
  };
  static const Spelling spellings[] = {
      {"pooling_mode_cls_token", "cls", Pooling::First},
      {"pooling_mode_max_tokens", "max", Pooling::Max},
      {"pooling_mode_mean_tokens", "mean", Pooling::Mean},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::MeanSqrt},
      {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::WeightedMean},
      {"pooling_mode_lasttoken", "lasttoken", Pooling::Last},
  };
  std::vector<Pooling> poolings;
  const json mode = value_of(config, "pooling_mode", json());
  if (mode.is_null()) {
    for (const Spelling& one : spellings)
      if (value_of(config, one.flag, false)) poolings.push_back(one.pooling);
    if (poolings.empty()) poolings.push_back(Pooling::Mean);
    return poolings;
  }
  for (const json& word : mode.is_array() ? mode : json::array({mode})) {
    const auto* found =
        std::find_if(std::begin(spellings), std::end(spellings), [&](const Spelling& one) { return word == one.word; });
    if (found == std::end(spellings))
      throw Refusal{file + " requests the pooling " + word.dump() + ", which is not known"};
    poolings.push_back(found->pooling);
  }
  if (poolings.empty()) throw Refusal{file + " requests no pooling"};
  return poolings;
}

Activation read_activation(const json& config, const std::string& file) {
  static const std::map<std::string, Activation> words{
      {"torch.nn.modules.linear.Identity", Activation::Identity},
      {"torch.nn.modules.activation.Tanh", Activation::Tanh},
      {"torch.nn.modules.activation.ReLU", Activation::Relu},
      {"torch.nn.modules.activation.GELU", Activation::Gelu},
      {"torch.nn.modules.activation.Sigmoid", Activation::Sigmoid},
      {"torch.nn.modules.activation.SiLU", Activation::Silu},
  };
  const auto word = value_of<std::string>(config, "activation_function", "torch.nn.modules.activation.Tanh");
  const auto found = words.find(word);
  if (found == words.end())
    throw Refusal{file + " names the activation " + word +
                  ", which is not supported; supported are Identity, Tanh, ReLU, GELU, Sigmoid and SiLU of torch.nn"};
  return found->second;
}

void check_width(const std::string& file, const char* key, int64_t found, size_t expected) {
  if (found != static_cast<int64_t>(expected))
    throw Error(Reason::ModelUnreadable, file + ": " + key + " is " + std::to_string(found) +
                                             "; the module before it has " + std::to_string(expected) + " values");
}

constexpr int64_t max_width = 1 << 16;

DenseModule read_dense(const std::filesystem::path& folder, const json& config, const std::string& file, size_t width) {
  for (const char* key : {"module_input_name", "module_output_name"})
    if (const auto name = value_of<std::string>(config, key, "sentence_embedding"); name != "sentence_embedding")
      throw Refusal{file + " has " + key + " " + name + "; only sentence_embedding is supported"};
  const auto outputs = value_of<int64_t>(config, "out_features", 0);
  check_width(file, "in_features", value_of<int64_t>(config, "in_features", 0), width);
  if (outputs < 1 || outputs > max_width)
    throw Error(Reason::ModelUnreadable, file + ": out_features is " + std::to_string(outputs) +
                                             "; expected a number from 1 to " + std::to_string(max_width));
  DenseModule dense{width, static_cast<size_t>(outputs), {}, {}, read_activation(config, file)};
  ModuleWeights weights = ModuleWeights::of_folder(folder);
  dense.weight = weights.read_matrix("linear.weight", width, dense.outputs);
  if (value_of(config, "bias", true)) dense.bias = weights.read("linear.bias", {outputs});
  dense.adds_input = value_of(config, "use_residual", false);
  if (dense.adds_input && width != dense.outputs)
    dense.residual = weights.read_matrix("residual.weight", width, dense.outputs);
  weights.end();
  return dense;
}

LayerNormModule read_layer_norm(const std::filesystem::path& folder, const json& config, const std::string& file,
                                size_t width) {
  check_width(file, "dimension", value_of<int64_t>(config, "dimension", 0), width);
  ModuleWeights weights = ModuleWeights::of_folder(folder);
  LayerNormModule norm{weights.read("norm.weight", {static_cast<int64_t>(width)}),
                       weights.read("norm.bias", {static_cast<int64_t>(width)})};
  weights.end();
  return norm;
}

/// Reads the modules behind the model in their order.
void read_modules(const std::filesystem::path& folder, const json& modules, size_t width, Embedding& embedding) {
  bool pooled = false;
  for (const json& module : modules) {
    const auto type = value_of<std::string>(module, "type", ""), path = value_of<std::string>(module, "path", "");
    const auto kind = type.substr(type.rfind('.') + 1);
    if (kind == "Transformer" || kind == "Dropout") continue;  // without effect where nothing is trained
    const std::filesystem::path own = module_folder(folder, path);
    const std::string file = (std::filesystem::path(path) / "config.json").string();
    if (kind == "Pooling" && !pooled) {
      const json config = read_json_file(own / "config.json");
      embedding.poolings = read_poolings(config, file);
      embedding.skips_prompt = !value_of(config, "include_prompt", true);
      width *= embedding.poolings.size();
      pooled = true;
    } else if (kind == "Normalize" && pooled) {
      embedding.modules.push_back(std::make_shared<VectorModule>(NormalizeModule{}));
    } else if (kind == "Dense" && pooled) {
      auto dense = read_dense(own, read_json_file(own / "config.json"), file, width);
      width = dense.outputs;
      embedding.modules.push_back(std::make_shared<VectorModule>(std::move(dense)));
    } else if (kind == "LayerNorm" && pooled) {
      embedding.modules.push_back(
          std::make_shared<VectorModule>(read_layer_norm(own, read_json_file(own / "config.json"), file, width)));
    } else {
      throw Refusal{"modules.json has the module " + type + (pooled ? "" : " before a pooling") +
                    ", which is not supported"};
    }
  }
  // A last Normalize is what a request may switch off.
  while (!embedding.modules.empty() && std::holds_alternative<NormalizeModule>(*embedding.modules.back())) {
    embedding.modules.pop_back();
    embedding.normalize = true;
  }
}

Similarity read_similarity(const json& config) {
  static const std::map<std::string, Similarity> words{{"cosine", Similarity::Cosine},
                                                       {"dot", Similarity::Dot},
                                                       {"dot_product", Similarity::Dot},
                                                       {"euclidean", Similarity::Euclidean},
                                                       {"manhattan", Similarity::Manhattan}};
  const auto word = value_of<std::string>(config, "similarity_fn_name", "cosine");
  const auto found = words.find(word);
  if (found == words.end())
    throw Refusal{"config_sentence_transformers.json has the similarity_fn_name " + word +
                  "; supported are cosine, dot, euclidean and manhattan"};
  return found->second;
}

}  // namespace

Prompts read_prompts(const std::filesystem::path& folder) {
  const json config = read_json_file(folder / "config_sentence_transformers.json");
  Prompts prompts;
  const json named = value_of(config, "prompts", json::object());
  for (const auto& [name, text] : named.items())
    if (text.is_string()) prompts.by_name[name] = text;
  if (const auto standard = value_of<std::string>(config, "default_prompt_name", ""); !standard.empty())
    if (const auto found = prompts.by_name.find(standard); found != prompts.by_name.end())
      prompts.standard = found->second;
  return prompts;
}

const std::string& Prompts::of(TextUse use) const {
  static const std::vector<std::string> queries{"query"}, documents{"document", "passage", "corpus"};
  if (use != TextUse::Unknown)
    for (const std::string& name : use == TextUse::Query ? queries : documents)
      if (const auto found = by_name.find(name); found != by_name.end()) return found->second;
  return standard;
}

std::optional<SentenceTransformer> read_sentence_transformer(const std::filesystem::path& folder,
                                                             const std::string& states, int64_t width) {
  const json modules = read_json_file(folder / "modules.json");
  if (!modules.is_array()) return std::nullopt;
  SentenceTransformer read;
  read.embedding.output = states;
  read.embedding.normalize = false;
  const json texts = read_json_file(folder / "sentence_bert_config.json"),
             more = read_json_file(folder / "config_sentence_transformers.json");
  read.max_tokens = value_of<int64_t>(texts, "max_seq_length", 0);
  read.prompts = read_prompts(folder);
  try {
    read_modules(folder, modules, static_cast<size_t>(width), read.embedding);
    read.similarity = read_similarity(more);
    if (value_of(texts, "do_lower_case", false))
      throw Refusal{"sentence_bert_config.json asks for do_lower_case, which is not supported"};
  } catch (const Refusal& refusal) {
    read.refusal = refusal.text;
  }
  return read;
}

}  // namespace pm::server
