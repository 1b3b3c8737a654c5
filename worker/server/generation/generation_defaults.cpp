// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/generation_defaults.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/engine/sampling/sampling_json.h"

#include "base/log.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Warns about parameters that affect transformers' output and are not supported here. The table holds the values that
/// have no effect.
void warn_about_unsupported(const json& config, const std::string& file) {
  static const json neutral_values = {{"encoder_no_repeat_ngram_size", 0},
                                      {"encoder_repetition_penalty", 1},
                                      {"diversity_penalty", 0},
                                      {"num_beam_groups", 1},
                                      {"epsilon_cutoff", 0},
                                      {"eta_cutoff", 0},
                                      {"top_h", 1},
                                      {"penalty_alpha", 0},
                                      {"exponential_decay_length_penalty", nullptr},
                                      {"sequence_bias", nullptr},
                                      {"guidance_scale", 1},
                                      {"constraints", nullptr},
                                      {"force_words_ids", nullptr},
                                      {"stop_strings", json::array()}};
  for (const auto& [name, neutral] : neutral_values.items()) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null() && *found != neutral)
      LOG(WARNING) << file << " sets " << name << " = " << found->dump().substr(0, 80)
                   << ", which is not supported and has no effect";
  }
}

/// Published checkpoints say temperature 0 for greedy decoding, which transformers says by `do_sample`.
void read_zero_temperature(json& config, const std::string& file) {
  const auto found = config.find("temperature");
  if (found == config.end() || !found->is_number() || found->get<double>() != 0) return;
  LOG(WARNING) << file << " sets temperature = 0: requests that do not ask for sampling are greedy";
  config.erase("temperature");
  config["do_sample"] = false;
}

}  // namespace

GenerationDefaults read_generation_defaults(const std::filesystem::path& folder) {
  GenerationDefaults defaults;
  const auto file = folder / "generation_config.json";
  std::ifstream in(file);
  if (!in) return defaults;
  try {
    auto config = json::parse(in);
    if (!config.is_object()) throw Error(Reason::ModelUnreadable, file.string() + " does not hold a JSON object");
    read_zero_temperature(config, file.string());
    defaults.config = engine::read_generation_config(config);
    defaults.has_top_k = !config.value("top_k", json()).is_null();
    warn_about_unsupported(config, file.string());
  } catch (const json::exception& error) {
    throw Error(Reason::ModelUnreadable, file.string() + ": " + error.what());
  } catch (const std::invalid_argument& error) {
    throw Error(Reason::ModelUnreadable, file.string() + ": " + error.what() + "; correct the file or remove the key");
  }
  return defaults;
}

}  // namespace pm::server
