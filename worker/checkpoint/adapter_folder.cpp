// SPDX-License-Identifier: Apache-2.0
// The config of an adapter follows PEFT's LoraConfig; the names of its tensors PEFT's get_peft_model_state_dict.
#include "worker/checkpoint/adapter_folder.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>

#include "worker/base/error.h"
#include "worker/checkpoint/passage_index.h"
#include "worker/checkpoint/quantized/float_codes.h"
#include "worker/checkpoint/torch_file.h"

namespace pm::checkpoint {

namespace {

using Json = nlohmann::ordered_json;  // the first pattern that a name matches counts
namespace fs = std::filesystem;

constexpr const char* config_name = "adapter_config.json";
constexpr int64_t max_config_bytes = int64_t{1} << 20;
constexpr int max_depth = 64;     // of a config, because copies and excerpts of values recurse
constexpr int max_keys = 10'000;  // of a config, because a key is found by comparing it with all before it
constexpr std::string_view tensor_prefix = "base_model.model.", suffix_a = ".lora_A.weight",
                           suffix_b = ".lora_B.weight", suffix_weight = ".weight", suffix_bias = ".bias";

[[noreturn]] void refuse_adapter(const fs::path& folder, const std::string& what) {
  throw Error(Reason::ModelUnreadable, "adapter " + printable(folder.string()) + ": " + what);
}

Json read_config(const RandomAccessFile& file) {
  if (file.size > max_config_bytes) refuse(file, "has " + std::to_string(file.size) + " bytes; at most 1 MiB is read");
  std::string text(static_cast<size_t>(file.size), '\0');
  file.read(0, text);
  int keys = 0;
  const auto watch = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > max_depth) refuse(file, "is nested deeper than " + std::to_string(max_depth));
    if (event == Json::parse_event_t::key && ++keys > max_keys)
      refuse(file, "has more than " + std::to_string(max_keys) + " keys");
    return true;
  };
  Json config = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (!config.is_object()) refuse(file, "is not a JSON object");
  return config;
}

/// Returns whether an option is set to something: not absent, null, false or empty.
bool is_set(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_string()) return !found->get_ref<const std::string&>().empty();  // empty() of a text is false
  return !found->is_structured() || !found->empty();
}

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return printable(text.size() > 80 ? text.substr(0, 80) + "..." : text);
}

void refuse_unsupported(const fs::path& folder, const Json& config) {
  const auto refuse_key = [&](const char* key, const std::string& why) {
    refuse_adapter(folder, std::string("adapter_config.json has ") + key + " " + excerpt(config[key]) + "; " + why);
  };
  if (config.value("peft_type", Json()) != "LORA") {
    if (!config.contains("peft_type")) refuse_adapter(folder, "adapter_config.json has no peft_type; expected LORA");
    refuse_key("peft_type",
               "only LORA is served; merge the adapter into its base model with PEFT's merge_and_unload()");
  }
  if (is_set(config, "bias") && config["bias"] != "none")
    refuse_key("bias", "only \"none\" is served, for trained biases change every request's base");
  const std::pair<const char*, const char*> features[]{
      {"use_dora", "DoRA is not served"},
      {"use_qalora", "QA-LoRA is not served"},
      {"lora_bias", "biases of the factors are not served"},
      {"trainable_token_indices", "trained tokens are not served"},
      {"target_parameters", "factors of parameters are not served, only those of modules"},
      {"layer_replication", "replicated layers are not served"},
      {"alora_invocation_tokens", "activated LoRA is not served"},
      {"use_bdlora", "block-diagonal factors are not served"},
      {"arrow_config", "Arrow routing is not served"},
      {"megatron_config", "factors of Megatron's linears are not served"},
  };
  for (const auto& [key, why] : features)
    if (is_set(config, key)) refuse_key(key, std::string(why) + "; merge the adapter with PEFT's merge_and_unload()");
  if (!config.contains("init_lora_weights") || !config["init_lora_weights"].is_string()) return;
  std::string init = config["init_lora_weights"];  // PEFT takes some of them in any case
  std::transform(init.begin(), init.end(), init.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* changes_base : {"pissa", "olora", "corda", "loftq", "lora_ga"})
    if (init.starts_with(changes_base))
      refuse_key("init_lora_weights",
                 "its factors belong to a changed base model; save it with "
                 "path_initial_model_for_weight_conversion, or merge it");
}

/// Returns the name that an expression matches alone, without its anchors; nullopt where it may match others. A dot
/// stands for itself, and so does what follows a backslash, but for letters and digits: "\d" is a class.
std::optional<std::string> plain_name(std::string_view expression) {
  if (expression.starts_with('^')) expression.remove_prefix(1);
  if (expression.ends_with('$')) expression.remove_suffix(1);
  std::string name;
  for (size_t i = 0; i < expression.size(); ++i) {
    const bool escaped = expression[i] == '\\' && i + 1 < expression.size();
    const char letter = expression[escaped ? ++i : i];
    const bool alphanumeric = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    if (alphanumeric ? escaped : letter != '_' && letter != '.' && letter != '-') return std::nullopt;
    name += letter;
  }
  return name.empty() ? std::nullopt : std::optional(name);
}

/// Numbers by the ends of module names, as rank_pattern and alpha_pattern have them: an expression is a name, which
/// "^" binds to the whole name.
class Pattern {
 public:
  Pattern(const fs::path& folder, const Json& config, const char* key) {
    if (!is_set(config, key)) return;
    if (!config[key].is_object())
      refuse_adapter(folder, std::string(key) + " of adapter_config.json is " + excerpt(config[key]) +
                                 "; expected an object of numbers by module names");
    for (const auto& [expression, number] : config[key].items()) {
      const std::optional<std::string> name = plain_name(expression);
      if (!name || !number.is_number())
        refuse_adapter(folder, std::string(key) + " of adapter_config.json has " + excerpt(expression) + ": " +
                                   excerpt(number) + "; only names of modules and numbers are read");
      rows_.push_back({.name = *name, .whole = expression.starts_with('^'), .number = number});
    }
  }
  std::optional<double> of(const std::string& module) const {
    for (const Row& row : rows_)
      if (module == row.name || (!row.whole && module.ends_with("." + row.name))) return row.number;
    return std::nullopt;
  }

 private:
  struct Row {
    std::string name;
    bool whole = false;
    double number = 0;
  };
  std::vector<Row> rows_;
};

double number_of(const fs::path& folder, const Json& config, const char* key, double absent) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return absent;
  if (!found->is_number() || !(found->get<double>() > 0))
    refuse_adapter(folder,
                   std::string(key) + " of adapter_config.json is " + excerpt(*found) + "; expected a number above 0");
  return *found;
}

bool flag_of(const fs::path& folder, const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return false;
  if (!found->is_boolean())
    refuse_adapter(folder,
                   std::string(key) + " of adapter_config.json is " + excerpt(*found) + "; expected true or false");
  return found->get<bool>();
}

bool is_list_of_names(const Json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& one) {
           return one.is_string() && !one.get_ref<const std::string&>().empty();
         });
}

std::vector<std::string> listed_targets(const fs::path& folder, const Json& config) {
  if (!is_set(config, "target_modules")) refuse_adapter(folder, "adapter_config.json has no target_modules");
  const Json& targets = config["target_modules"];
  if (targets.is_string()) return {};
  if (!is_list_of_names(targets))
    refuse_adapter(folder, "target_modules of adapter_config.json is " + excerpt(targets) +
                               "; expected a list of module names or an expression");
  return targets.get<std::vector<std::string>>();
}

std::vector<std::string> listed_saved(const fs::path& folder, const Json& config) {
  if (!is_set(config, "modules_to_save")) return {};
  const Json& names = config["modules_to_save"];
  if (!is_list_of_names(names))
    refuse_adapter(folder,
                   "modules_to_save of adapter_config.json is " + excerpt(names) + "; expected a list of module names");
  return names.get<std::vector<std::string>>();
}

bool is_float(DType type) { return type == DType::F32 || type == DType::F16 || type == DType::BF16; }

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return (text.empty() ? "[" : text) + "]";
}

void check_factors(const fs::path& folder, const std::string& module, const AdapterMatrix& matrix) {
  for (const TensorInfo* factor : {&matrix.a, &matrix.b}) {
    const bool is_a = factor == &matrix.a;
    if (factor->name.empty())
      refuse_adapter(folder, "module " + printable(module) + " has no " + (is_a ? "lora_A" : "lora_B") +
                                 ".weight; both factors are expected");
    const bool sound = factor->shape.size() == 2 && factor->shape[0] > 0 && factor->shape[1] > 0 &&
                       is_float(factor->dtype) && factor->strides.empty();
    if (!sound)
      refuse_adapter(folder, "tensor " + printable(factor->name) + " is " + std::string(name_of(factor->dtype)) +
                                 " of shape " + text_of(factor->shape) +
                                 "; expected a row-major matrix of F32, F16 or BF16");
  }
  if (matrix.a.shape[0] != matrix.b.shape[1])
    refuse_adapter(folder, "module " + printable(module) + " has factors of shapes " + text_of(matrix.a.shape) +
                               " and " + text_of(matrix.b.shape) + "; expected [rank, in] and [out, rank]");
}

void check_saved(const fs::path& folder, const std::string& module, const SavedModule& saved) {
  if (saved.weight.name.empty())
    refuse_adapter(folder, "module " + printable(module) + " has a bias and no weight; the whole module is expected");
  const auto check = [&](const TensorInfo& tensor, size_t dimensions) {
    if (tensor.shape.size() == dimensions && is_float(tensor.dtype) && tensor.strides.empty()) return;
    refuse_adapter(folder, "tensor " + printable(tensor.name) + " is " + std::string(name_of(tensor.dtype)) +
                               " of shape " + text_of(tensor.shape) + "; expected a row-major " +
                               (dimensions == 2 ? "matrix" : "vector") + " of F32, F16 or BF16");
  };
  check(saved.weight, 2);
  if (saved.bias) check(*saved.bias, 1);
}

}  // namespace

bool AdapterFolder::saves(const std::string& module) const {
  for (size_t end = 0; end != module.npos;) {
    end = module.find('.', end + 1);
    const std::string_view within = std::string_view(module).substr(0, end);
    if (std::any_of(saved_names_.begin(), saved_names_.end(),
                    [&](const std::string& name) { return within.ends_with(name); }))
      return true;
  }
  return false;
}

AdapterFolder AdapterFolder::open(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / config_name, error))
    refuse_adapter(folder, "has no adapter_config.json; expected a folder that PEFT's save_pretrained() wrote");
  for (const bool torch : {false, true}) {
    const fs::path path = folder / (torch ? "adapter_model.bin" : "adapter_model.safetensors");
    if (fs::exists(path, error)) return open(folder, {open_file(folder / config_name), open_file(path), torch});
  }
  refuse_adapter(folder, "has neither adapter_model.safetensors nor adapter_model.bin");
}

AdapterFolder AdapterFolder::open(const fs::path& folder, AdapterFiles files) {
  const Json config = read_config(files.config);
  refuse_unsupported(folder, config);
  AdapterFolder adapter;
  adapter.folder_ = folder;
  adapter.targets_ = listed_targets(folder, config);
  adapter.saved_names_ = listed_saved(folder, config);
  adapter.ties_saved_ = !adapter.saved_names_.empty() && flag_of(folder, config, "ensure_weight_tying");
  adapter.adapts_all_layers_ = !adapter.targets_.empty() && !is_set(config, "layers_to_transform") &&
                               !is_set(config, "layers_pattern") && !is_set(config, "exclude_modules");
  const Header header = files.torch ? read_torch_file(files.weights) : read_safetensors(files.weights);
  adapter.file_ = std::move(files.weights);
  if (!header.unsupported.empty()) {
    const auto& [name, tensor] = *header.unsupported.begin();
    refuse_adapter(
        folder, "tensor " + printable(name) + " has elements of type " + tensor.type + "; expected F32, F16 or BF16");
  }
  for (const auto& [name, tensor] : header.tensors) {
    std::string_view module = name;
    const bool has_prefix = module.starts_with(tensor_prefix);
    if (has_prefix) module.remove_prefix(tensor_prefix.size());
    const auto take = [&](std::string_view suffix) {
      if (!has_prefix || module.size() <= suffix.size() || !module.ends_with(suffix)) return false;
      module.remove_suffix(suffix.size());
      return true;
    };
    if (take(suffix_a)) {
      adapter.matrices_[std::string(module)].a = tensor;
    } else if (take(suffix_b)) {
      adapter.matrices_[std::string(module)].b = tensor;
    } else if (const bool is_weight = take(suffix_weight);
               (is_weight || take(suffix_bias)) && (adapter.saves(std::string(module)) || adapter.ties_saved_)) {
      SavedModule& saved = adapter.saved_[std::string(module)];
      is_weight ? saved.weight = tensor : saved.bias.emplace(tensor);
    } else {
      refuse_adapter(folder, "tensor " + printable(name) +
                                 " is no factor of a linear, nor of a module that modules_to_save names; expected "
                                 "base_model.model.MODULE.lora_A.weight and lora_B.weight, and whole modules that the "
                                 "config names");
    }
  }
  if (adapter.matrices_.empty()) refuse_adapter(folder, "its file has no tensor");
  const Pattern ranks(folder, config, "rank_pattern"), alphas(folder, config, "alpha_pattern");
  const double rank = number_of(folder, config, "r", 8), alpha = number_of(folder, config, "lora_alpha", 8);
  const bool root = flag_of(folder, config, "use_rslora");
  for (auto& [module, matrix] : adapter.matrices_) {
    check_factors(folder, module, matrix);
    const double expected = ranks.of(module).value_or(rank), own = static_cast<double>(matrix.rank());
    if (own != expected)
      refuse_adapter(folder, "module " + printable(module) + " has factors of rank " + std::to_string(matrix.rank()) +
                                 ", and adapter_config.json says " + excerpt(expected));
    matrix.scale = alphas.of(module).value_or(alpha) / (root ? std::sqrt(own) : own);
  }
  for (const auto& [module, saved] : adapter.saved_) check_saved(folder, module, saved);
  for (const std::string& target : adapter.targets_)
    if (std::none_of(adapter.matrices_.begin(), adapter.matrices_.end(),
                     [&](const auto& one) { return one.first == target || one.first.ends_with("." + target); }))
      refuse_adapter(folder, "target_modules names " + excerpt(target) + ", of which the file has no factor");
  return adapter;
}

int64_t AdapterFolder::rank() const {
  int64_t most = 0;
  for (const auto& [module, matrix] : matrices_) most = std::max(most, matrix.rank());
  return most;
}

std::vector<float> AdapterFolder::read(const TensorInfo& tensor, int64_t first, int64_t count) const {
  const int64_t width = tensor.shape.size() > 1 ? tensor.shape[1] : 1, row_bytes = width * size_of(tensor.dtype);
  std::vector<char> bytes(static_cast<size_t>(count * row_bytes));
  file_.read(tensor.offset + first * row_bytes, bytes);
  std::vector<float> values(static_cast<size_t>(count * width));
  if (tensor.dtype == DType::F32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      values[i] = tensor.dtype == DType::F16 ? from_f16(bits) : from_bf16(bits);
    }
  }
  if (!std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }))
    refuse_adapter(folder_, "tensor " + printable(tensor.name) + " has infinities or NaNs");
  return values;
}

}  // namespace pm::checkpoint
