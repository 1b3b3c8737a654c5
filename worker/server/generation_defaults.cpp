// See generation_defaults.h.
#include "worker/server/generation_defaults.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/engine/sampling_json.h"
#include "worker/base/log.h"

namespace pm::server {
namespace {

using nlohmann::json;

engine::EarlyStopping early_stopping_of(const json& value) {
  if (value == "never") return engine::EarlyStopping::Never;
  return value.get<bool>() ? engine::EarlyStopping::Yes : engine::EarlyStopping::No;
}

/// What changes tokens in transformers and has no counterpart here, with the values that change nothing.
void warn_of_unserved(const json& config, const std::string& file) {
  static const json kNeutral = {{"encoder_no_repeat_ngram_size", 0}, {"encoder_repetition_penalty", 1}, {"diversity_penalty", 0}, {"num_beam_groups", 1}, {"epsilon_cutoff", 0},
                                {"eta_cutoff", 0}, {"top_h", 1}, {"penalty_alpha", 0}, {"exponential_decay_length_penalty", nullptr}, {"suppress_tokens", json::array()},
                                {"begin_suppress_tokens", json::array()}, {"sequence_bias", nullptr}, {"guidance_scale", 1}, {"constraints", nullptr}, {"force_words_ids", nullptr},
                                {"stop_strings", json::array()}};
  for (const auto& [name, neutral] : kNeutral.items()) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null() && *found != neutral) LOG(WARNING) << file << " asks for " << name << " = " << found->dump().substr(0, 80) << ", which is not served";
  }
}

}  // namespace

GenerationDefaults read_generation_defaults(const std::filesystem::path& folder) {
  GenerationDefaults defaults;
  const auto file = folder / "generation_config.json";
  std::ifstream in(file);
  if (!in) return defaults;
  try {
    const auto config = json::parse(in);
    if (!config.is_object()) throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + " holds no JSON object");
    engine::read_sampling(config, defaults.sampling);
    const auto read = [&]<class T>(const char* name, std::optional<T>& into) {
      const auto found = config.find(name);
      if (found != config.end() && !found->is_null()) into = found->template get<T>();
    };
    std::optional<int64_t> top_k, num_beams, num_return_sequences;
    std::optional<double> length_penalty;
    read("top_k", top_k);
    read("num_beams", num_beams);
    read("num_return_sequences", num_return_sequences);
    read("length_penalty", length_penalty);
    read("max_length", defaults.max_length);
    read("min_length", defaults.min_length);
    read("max_new_tokens", defaults.max_new_tokens);
    read("max_time", defaults.max_time);
    defaults.top_k_given = top_k.has_value();
    defaults.search.num_beams = std::max<int64_t>(num_beams.value_or(1), 1);
    defaults.search.num_return_sequences = std::max<int64_t>(num_return_sequences.value_or(1), 1);
    defaults.search.length_penalty = length_penalty.value_or(1);
    const auto early = config.find("early_stopping");
    if (early != config.end() && !early->is_null()) defaults.search.early_stopping = early_stopping_of(*early);
    warn_of_unserved(config, file.string());
  } catch (const json::exception& error) {
    throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + ": " + error.what());
  }
  return defaults;
}

}  // namespace pm::server
