// SPDX-License-Identifier: Apache-2.0
// Reads one JSON job per line and writes what worker/audio makes of it, for tests/parity/test_audio_files.py to compare
// with transformers:
//   {"file": path, "out": path, "rate": n}      the decoded samples, float32
//   {"file", "out", "folder"}                   the model's input by the folder's preprocessor_config.json, float32
// Answers {"shape": [...]} or {"error": text} per line.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "worker/audio/audio.h"
#include "worker/audio/feature_extractor.h"

namespace {

using nlohmann::json;

void write(const std::string& path, const std::vector<float>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
}

json answer(const json& job) {
  std::ifstream in(job["file"].get<std::string>(), std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  if (!job.contains("folder")) {
    const auto samples = pm::audio::open(bytes.str(), job["rate"]);
    write(job["out"], samples);
    return {{"shape", {samples.size()}}};
  }
  const auto extractor = pm::audio::FeatureExtractor::read(job["folder"].get<std::string>());
  if (!extractor) return {{"error", "no preprocessor_config.json"}};
  const auto inputs = (*extractor)(pm::audio::open(bytes.str(), extractor->rate));
  write(job["out"], std::get<std::vector<float>>(inputs.begin()->second.values));
  return {{"shape", inputs.begin()->second.shape}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    json said;
    try {
      said = answer(json::parse(line));
    } catch (const std::exception& error) {
      said = {{"error", error.what()}};
    }
    std::cout << said.dump() << std::endl;
  }
}
