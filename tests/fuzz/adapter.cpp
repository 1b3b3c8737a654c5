// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter for a small base model: two bytes that choose model and form of the weights, a line with
// adapter_config.json, then the weights (adapter_input.h). It is refused, or its factors are those that the base
// model's matrices demand, with the elements of the file and the scale of the config.
#include "tests/fuzz/adapter_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "worker/checkpoint/adapter_folder.h"

namespace {

using pm::fuzz::AdapterWeights, pm::fuzz::Base, pm::fuzz::hold;
using Adapter = pm::checkpoint::AdapterFolder;
using Json = nlohmann::ordered_json;

constexpr int64_t max_rank = 32;  // of the server's memory: what is larger is opened, but not read
constexpr size_t nested = 40'000;

/// The config with one more letter than JSON has: the first \x01 stands for many brackets, for which inputs have no
/// room.
std::string config_of(std::string line) {
  if (const size_t at = line.find('\1'); at != line.npos)
    line.replace(at, 1, std::string(nested, '[') + std::string(nested, ']'));
  return line;
}

/// Whether Python takes the value for true.
bool is_true(const Json& config, const char* key) {
  const Json value = config.value(key, Json());
  if (value.is_number()) return value != 0;
  if (value.is_string()) return value != "";
  return value.is_boolean() ? value.get<bool>() : !value.empty();
}

/// Returns the number of the first pattern that PEFT's re.match(rf"(.*\.)?({pattern})$", module) would find, for
/// patterns that are names.
double number_of(const Json& config, const char* patterns, const char* key, const std::string& module) {
  if (is_true(config, patterns)) {
    for (const auto& [pattern, number] : config[patterns].items()) {
      std::string name;
      for (size_t i = 0; i < pattern.size(); ++i) {
        if ((i == 0 && pattern[i] == '^') || (i + 1 == pattern.size() && pattern[i] == '$')) continue;
        if (pattern[i] == '\\')
          hold(++i < pattern.size() && !std::isalnum(static_cast<unsigned char>(pattern[i])),
               "\"" + pattern + "\" is an expression, and was read as a name");
        name += pattern[i];
      }
      if (module == name || (!pattern.starts_with('^') && module.ends_with("." + name))) return number;
    }
  }
  const Json value = config.value(key, Json());
  return value.is_null() ? 8 : value.get<double>();
}

/// What changes the factors' meaning was refused.
void check_options(const Json& config) {
  hold(config.is_object() && config.value("peft_type", Json()) == "LORA", "another method than LoRA");
  hold(!is_true(config, "bias") || config["bias"] == "none", "biases");
  for (const char* key : {"use_dora", "use_qalora", "lora_bias", "trainable_token_indices", "target_parameters",
                          "layer_replication", "alora_invocation_tokens", "use_bdlora"})
    hold(!is_true(config, key), std::string(key) + " was ignored");
  if (const Json init = config.value("init_lora_weights", Json()); init.is_string()) {
    std::string name = init;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const char* changes_base : {"pissa", "olora", "corda", "loftq", "lora_ga"})
      hold(!name.starts_with(changes_base), "init_lora_weights was ignored");
  }
}

/// Returns whether PEFT's rule finds the module, or one around it: its name ends in one of modules_to_save.
bool is_named(const Json& config, const std::string& module) {
  if (!is_true(config, "modules_to_save")) return false;
  for (size_t end = module.find('.');; end = module.find('.', end + 1)) {
    for (const std::string name : config["modules_to_save"])
      if (module.substr(0, end).ends_with(name)) return true;
    if (end == module.npos) return false;
  }
}

/// Returns the number of tensors that whole modules have. Each is in the file, and the config names its module.
size_t check_saved(const Adapter& adapter, const Json& config, const AdapterWeights::Table& table) {
  size_t tensors = 0;
  const auto check = [&](const pm::checkpoint::TensorInfo& tensor, const std::string& name) {
    const auto found = table.find(name);
    hold(found != table.end() && tensor.name == name, "\"" + name + "\" is not in the file");
    hold(tensor.dtype == found->second.dtype && tensor.shape == found->second.shape &&
             tensor.offset == found->second.offset && tensor.bytes == found->second.bytes,
         "\"" + name + "\" is another tensor");
    ++tensors;
  };
  for (const auto& [module, saved] : adapter.saved()) {
    check(saved.weight, "base_model.model." + module + ".weight");
    if (saved.bias) check(*saved.bias, "base_model.model." + module + ".bias");
    hold(is_named(config, module) || is_true(config, "ensure_weight_tying"), module + " is not named");
  }
  return tensors;
}

/// Every tensor of the file is one factor of one module, or of a whole one.
void check_matrices(const Adapter& adapter, const Json& config, const AdapterWeights::Table& table) {
  hold(adapter.matrices().size() * 2 + check_saved(adapter, config, table) == table.size(),
       "another number of factors than of tensors");
  int64_t most = 0;
  for (const auto& [module, matrix] : adapter.matrices()) {
    for (const auto* factor : {&matrix.a, &matrix.b}) {
      const std::string name =
          "base_model.model." + module + (factor == &matrix.a ? ".lora_A.weight" : ".lora_B.weight");
      const auto found = table.find(name);
      hold(found != table.end() && factor->name == name, "\"" + name + "\" is not in the file");
      const pm::checkpoint::TensorInfo& tensor = found->second;
      hold(factor->dtype == tensor.dtype && factor->shape == tensor.shape && factor->offset == tensor.offset &&
               factor->bytes == tensor.bytes,
           "\"" + name + "\" is another tensor");
      hold(tensor.shape.size() == 2, "\"" + name + "\" is no matrix");
    }
    hold(matrix.rank() > 0 && matrix.b.shape[1] == matrix.rank(), module + " has factors of two ranks");
    const auto rank = static_cast<double>(matrix.rank());
    hold(number_of(config, "rank_pattern", "r", module) == rank, module + " has another rank than the config");
    const double alpha = number_of(config, "alpha_pattern", "lora_alpha", module);
    hold(matrix.scale == alpha / (is_true(config, "use_rslora") ? std::sqrt(rank) : rank), module + " is scaled");
    most = std::max(most, matrix.rank());
  }
  hold(most > 0 && adapter.rank() == most, "another largest rank");
}

bool ends_in(const std::string& name, const std::string& end) { return name == end || name.ends_with("." + end); }

/// No module that the config adapts is missing.
void check_all_adapted(const Base& base, const Json& config, const pm::Arrays& factors) {
  for (const char* key : {"layers_to_transform", "layers_pattern", "exclude_modules"})
    if (is_true(config, key) || config.value(key, Json()).is_number()) return;
  if (!config["target_modules"].is_array()) return;
  for (const auto& [name, target] : base.targets)
    for (const std::string end : config["target_modules"])
      hold(!ends_in(name, end) || factors.contains(name + ".a"), name + " is not adapted");
}

double value_of(pm::DType type, const char* bytes) {
  if (type == pm::DType::F32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  const int exponent_bits = type == pm::DType::F16 ? 5 : 8, digits = 15 - exponent_bits,
            bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> digits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << digits) - 1);
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias - digits)
                                    : std::ldexp(fraction + (1 << digits), exponent - bias - digits);
  return bits >> 15 != 0 ? -size : size;
}

/// A factor has the shape [rows, columns] and the elements of its tensor, times the scale.
void check_factor(const pm::Arrays& factors, const std::string& name, const pm::checkpoint::TensorInfo& tensor,
                  const AdapterWeights& weights, int64_t rows, int64_t columns, std::optional<double> scale) {
  const auto found = factors.find(name);
  hold(found != factors.end(), name + " is missing");
  hold(found->second.shape == std::vector{rows, columns}, name + " has another shape");
  const auto& values = std::get<std::vector<float>>(found->second.values);
  hold(static_cast<int64_t>(values.size()) == rows * columns, name + " has another number of elements");
  const std::string bytes = weights.bytes(tensor.offset, tensor.bytes);
  const size_t width = tensor.dtype == pm::DType::F32 ? 4 : 2;
  hold(bytes.size() == values.size() * width, name + " has other bytes");
  for (size_t i = 0; i < values.size(); ++i) {
    const double stored = value_of(tensor.dtype, bytes.data() + i * width);
    hold(std::isfinite(values[i]), name + " has infinities or NaNs");
    hold(values[i] == static_cast<float>(stored * scale.value_or(1)), name + " has another element");
  }
}

void check_factors(const Base& base, const Adapter& adapter, const pm::Arrays& factors, const AdapterWeights& weights) {
  hold(factors.size() == adapter.matrices().size() * 2, "another number of arrays than of factors");
  int64_t elements = 0;
  for (const auto& [module, name] : pm::policy::bind_adapter(base.model, base.targets, adapter)) {
    const auto target = base.targets.find(name);
    hold(target != base.targets.end(), name + " is no matrix of the base model");
    if (name != module) {
      hold(!base.targets.contains(module), module + " is bound to " + name);
      for (const auto& [other, unused] : base.targets)
        hold((ends_in(other, module) || ends_in(module, other)) == (other == name),
             module + " is bound to " + name + ", and not to " + other);
    }
    const pm::checkpoint::AdapterMatrix& matrix = adapter.matrices().at(module);
    const auto& [params, in, out] = target->second;
    check_factor(factors, name + ".a", matrix.a, weights, matrix.rank(), in, std::nullopt);
    check_factor(factors, name + ".b", matrix.b, weights, out, matrix.rank(), matrix.scale);
    elements += matrix.rank() * (in + out);
  }
  hold(elements <= pm::policy::adapter_elements(base.targets, adapter.rank()), "more elements than memory is kept for");
}

/// Whole modules have the elements of their tensors, and no module of the base that the config names is left out.
void check_modules(const Base& base, const Adapter& adapter, const Json& config, const AdapterWeights& weights) {
  pm::Arrays blocks;
  pm::policy::read_saved(base.model, base.saved, adapter, [&](pm::Arrays block) {
    for (auto& [name, array] : block) hold(blocks.emplace(name, array).second, name + " is read twice");
  });
  const auto bound = pm::policy::bind_saved(base.model, base.saved, adapter);
  hold(bound.size() == adapter.saved().size(), "another number of whole modules");
  for (const auto& [name, target] : base.saved)
    hold(bound.contains(name) || !is_named(config, name), name + " is not replaced");
  for (const auto& [name, module] : bound) {
    const pm::checkpoint::SavedModule& saved = adapter.saved().at(module);
    const auto& shape = base.saved.at(name).weight->shape;
    check_factor(blocks, name + ".weight@0", saved.weight, weights, shape[0], shape[1], std::nullopt);
    hold(!saved.bias, name + " has a bias that no base model has");
  }
}

/// The bytes of each tensor were read as often as tensors have them: twice only where tensors of a .bin share them.
void check_reads(AdapterWeights& weights, const AdapterWeights::Table& table) {
  std::vector<int> expected(static_cast<size_t>(weights.size())), found(expected.size());
  const auto count = [](std::vector<int>& times, int64_t offset, int64_t bytes) {
    for (int64_t i = offset; i < offset + bytes; ++i) ++times[static_cast<size_t>(i)];
  };
  for (const auto& [name, tensor] : table) count(expected, tensor.offset, tensor.bytes);
  for (const auto& [offset, bytes] : weights.reads()) count(found, offset, bytes);
  hold(expected == found, "a factor is not read exactly once");
}

/// Returns whether the adapter is read.
bool read_adapter(const Base& base, AdapterWeights& weights, const std::string& config) {
  try {
    const auto adapter = Adapter::open("fuzz", {.config = {.name = "fuzz/adapter_config.json",
                                                           .size = static_cast<int64_t>(config.size()),
                                                           .read = pm::checkpoint::in_memory(config).read},
                                                .weights = weights.file(),
                                                .torch = weights.torch()});
    for (const auto& [offset, bytes] : weights.reads())
      hold(weights.data_begin() == 0 || offset + bytes <= weights.data_begin(), "opening reads elements");
    const Json parsed = Json::parse(config);
    const AdapterWeights::Table table = weights.table();
    check_options(parsed);
    check_matrices(adapter, parsed, table);
    if (adapter.rank() > max_rank) return false;
    weights.reads().clear();
    const pm::Arrays factors = pm::policy::read_factors(base.model, base.targets, adapter);
    check_factors(base, adapter, factors, weights);
    check_all_adapted(base, parsed, factors);
    check_modules(base, adapter, parsed, weights);
    check_reads(weights, table);
    return true;
  } catch (const pm::Error& error) {
    const std::string message = error.what();
    hold(error.reason == pm::Reason::ModelUnreadable, "another reason: " + message);
    hold(message.starts_with("adapter fuzz: ") || message.starts_with("fuzz/") || message.starts_with("m.bin"),
         "a refusal names neither adapter nor file: " + message);
    hold(message == pm::checkpoint::printable(message), "control characters in " + message);
    return false;
  }
}

/// If everything were refused, the checks above would never run.
bool reads_a_valid_adapter(const Base& base) {
  const std::string q = "base_model.model.model.layers.1.self_attn.q_proj.";
  AdapterWeights weights(AdapterWeights::Form::Lines, q + "lora_A.weight F16 3 8\n" + q +
                                                          "lora_B.weight F32 10 3\n"
                                                          "base_model.model.lm_head.weight BF16 11 8");
  return read_adapter(base, weights,
                      R"({"peft_type": "LORA", "r": 3, "target_modules": ["q_proj"], "layers_to_transform": [1],
                          "modules_to_save": ["lm_head"]})");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Base llama(pm::fuzz::tiny_llama(false)), phi3(pm::fuzz::tiny_llama(true)), gpt2(pm::policy::tiny_gpt2());
  static const bool works = reads_a_valid_adapter(llama);
  hold(works, "a valid adapter is refused");
  if (size < 2) return 0;
  const Base* const bases[]{&llama, &phi3, &gpt2};
  const Base& base = *bases[data[0] % 3];
  const auto form = static_cast<AdapterWeights::Form>(data[1] % 4);
  const std::string input = pm::fuzz::text(data + 2, size - 2);
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string config = input.substr(0, line);
  std::string stored = input.substr(std::min(line + 1, input.size()));
  if (form == AdapterWeights::Form::Fitting) stored = pm::fuzz::fitting_lines(base, config, stored);
  AdapterWeights weights(form, stored);
  read_adapter(base, weights, config_of(config));
  return 0;
}
