// See sampling_json.h.
#include "worker/engine/sampling_json.h"

#include <nlohmann/json.hpp>

namespace pm::engine {

namespace {

template <class T>
void read(const nlohmann::json& object, const char* name, T& into) {
  const auto found = object.find(name);
  if (found != object.end() && !found->is_null()) into = found->template get<T>();
}

}  // namespace

void read_sampling(const nlohmann::json& object, Sampling& sampling) {
  read(object, "do_sample", sampling.do_sample);
  read(object, "temperature", sampling.temperature);
  read(object, "top_k", sampling.top_k);
  read(object, "top_p", sampling.top_p);
  read(object, "min_p", sampling.min_p);
  read(object, "typical_p", sampling.typical_p);
  read(object, "seed", sampling.seed);
  read(object, "repetition_penalty", sampling.repetition_penalty);
  read(object, "presence_penalty", sampling.presence_penalty);
  read(object, "frequency_penalty", sampling.frequency_penalty);
  read(object, "no_repeat_ngram_size", sampling.no_repeat_ngram_size);
  read(object, "min_new_tokens", sampling.min_new_tokens);
  read(object, "bad_words_ids", sampling.bad_words);
  for (auto [name, id] : {std::pair{"forced_bos_token_id", &sampling.forced_bos}, {"forced_eos_token_id", &sampling.forced_eos}}) {
    const auto found = object.find(name);
    if (found != object.end() && found->is_number_integer()) *id = found->get<int32_t>();   // a list of ids counts as the model's
  }
}

void read_search(const nlohmann::json& object, Search& search) {
  read(object, "num_beams", search.num_beams);
  read(object, "num_return_sequences", search.num_return_sequences);
  read(object, "length_penalty", search.length_penalty);
  const auto early = object.find("early_stopping");
  if (early == object.end() || early->is_null()) return;
  if (*early == "never") search.early_stopping = EarlyStopping::Never;
  else search.early_stopping = early->get<bool>() ? EarlyStopping::Yes : EarlyStopping::No;
}

}  // namespace pm::engine
