// SPDX-License-Identifier: Apache-2.0
// Prints processed scores for the tests that compare with transformers. Each input line {"logits": [..], "tokens":
// [..], "prompt": n, parameters under Hugging Face's names} gives one line [..] with null for -inf.
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/engine/sampling/sampler.h"
#include "worker/engine/sampling/sampling_json.h"

using namespace pm::engine;

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto job = nlohmann::json::parse(line);
    const auto tokens = job.at("tokens").get<std::vector<int32_t>>();
    SamplingParams s = read_generation_config(job).sampling;
    s.eos = job.value("eos_token_id", s.eos);
    nlohmann::json out = nlohmann::json::array();
    for (float score :
         process_logits(job.at("logits").get<std::vector<float>>(), s, {tokens, job.at("prompt").get<size_t>()})) {
      out.push_back(std::isinf(score) ? nlohmann::json() : nlohmann::json(score));
    }
    std::cout << out.dump() << std::endl;
  }
}
