// See sampling_json.h.
#include "worker/engine/sampling_json.h"

#include <nlohmann/json.hpp>

namespace pm::engine {

void read_sampling(const nlohmann::json& object, Sampling& sampling) {
  const auto read = [&]<class T>(const char* name, T& into) {
    const auto found = object.find(name);
    if (found != object.end() && !found->is_null()) into = found->template get<T>();
  };
  read("do_sample", sampling.do_sample);
  read("temperature", sampling.temperature);
  read("top_k", sampling.top_k);
  read("top_p", sampling.top_p);
  read("min_p", sampling.min_p);
  read("typical_p", sampling.typical_p);
  read("seed", sampling.seed);
  read("repetition_penalty", sampling.repetition_penalty);
  read("presence_penalty", sampling.presence_penalty);
  read("frequency_penalty", sampling.frequency_penalty);
  read("no_repeat_ngram_size", sampling.no_repeat_ngram_size);
  read("min_new_tokens", sampling.min_new_tokens);
  read("bad_words_ids", sampling.bad_words);
}

}  // namespace pm::engine
