// SPDX-License-Identifier: Apache-2.0
// Reads one JSON job per line and writes what worker/image makes of it, for tests/parity/test_images.py to compare with
// Pillow and transformers:
//   {"file": path, "out": path}                                              the decoded RGB
//   {"file", "out", "width", "height", "resample"}                           resized
//   {"file", "out", "folder"}                                                pixel_values by the folder's
//   preprocessor_config.json, float32; patches where the folder's class gives them
//   {"file", "out", "folder", "patch", "merge"}                              whole images of any size, for a model of
//   such patches and squares
//   {"folder", "sizes": [[width, height], ...]}                              nothing, only answers
// Answers {"shape": [...]}, for patches also {"grid": [rows, columns]}, for sizes {"grids": [[rows, columns], ...]}
// with null for a refused size, or {"error": text} per line.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "worker/base/error.h"
#include "worker/image/processor.h"

namespace {

using nlohmann::json;

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

json grids(const pm::image::Processor& processor, const json& sizes) {
  json all = json::array();
  for (const json& size : sizes) {
    try {
      all.push_back(processor.patch_grid(size[0], size[1]));
    } catch (const pm::Error&) {
      all.push_back(nullptr);
    }
  }
  return {{"grids", all}};
}

json answer(const json& job) {
  if (job.contains("sizes")) {
    const auto processor = pm::image::Processor::read(job["folder"].get<std::string>());
    if (!processor) return {{"error", "no preprocessor_config.json"}};
    return grids(*processor, job["sizes"]);
  }
  std::ifstream in(job["file"].get<std::string>(), std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  pm::image::Image image = pm::image::open(bytes.str());
  const std::string out = job["out"];
  if (job.contains("folder")) {
    auto processor = pm::image::Processor::read(job["folder"].get<std::string>());
    if (!processor) return {{"error", "no preprocessor_config.json"}};
    if (job.contains("patch")) {
      processor->patches->patch = job["patch"];
      processor->patches->merge = job["merge"];
    } else if (processor->patches) {
      const auto patched = processor->patched(image);
      write(out, std::get<std::vector<float>>(patched.patches.values));
      return {{"shape", patched.patches.shape}, {"grid", {patched.down, patched.across}}};
    }
    const auto values = (*processor)(image);
    write(out, std::get<std::vector<float>>(values.values));
    return {{"shape", values.shape}};
  }
  if (job.contains("resample"))
    image = pm::image::resize(image, job["width"], job["height"],
                              static_cast<pm::image::Filter>(job["resample"].get<int>()));
  write(out, image.rgb);
  return {{"shape", {image.height, image.width, 3}}};
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
