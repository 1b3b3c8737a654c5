// Scores after all processors, for the tests that compare with transformers: one JSON line {"logits": [..], "tokens": [..], "prompt": n, parameters
// under Hugging Face's names} gives one line [..], null for -inf.
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/engine/sampler.h"
#include "worker/engine/sampling_json.h"

using namespace pm::engine;

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto job = nlohmann::json::parse(line);
    const auto tokens = job.at("tokens").get<std::vector<int32_t>>();
    Sampling s;
    read_sampling(job, s);
    s.eos = job.value("eos_token_id", s.eos);
    nlohmann::json out = nlohmann::json::array();
    for (float score : processed(job.at("logits").get<std::vector<float>>(), s, {tokens, job.at("prompt").get<size_t>()})) {
      out.push_back(std::isinf(score) ? nlohmann::json() : nlohmann::json(score));
    }
    std::cout << out.dump() << std::endl;
  }
}
