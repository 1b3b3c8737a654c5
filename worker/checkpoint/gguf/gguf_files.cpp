// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/gguf/gguf_files.h"

#include <algorithm>
#include <map>

#include "worker/base/error.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

constexpr std::string_view ending = ".gguf", between = "-of-";
constexpr size_t digits = 5;

/// A part of a split model; `parts` is 0 for a model in one file.
struct PartName {
  std::string model;
  int part = 0, parts = 0;
};

/// Returns the number of five digits at `at`, or 0.
int number_at(std::string_view text, size_t at) {
  int number = 0;
  for (const char c : text.substr(at, digits)) {
    if (c < '0' || c > '9') return 0;
    number = 10 * number + (c - '0');
  }
  return number;
}

PartName parse_name(const std::string& name) {
  const std::string_view stem(name.data(), name.size() - ending.size());
  constexpr size_t tail = 1 + digits + between.size() + digits;  // -00001-of-00003
  if (stem.size() <= tail) return {name};
  const size_t at = stem.size() - tail;
  const int part = number_at(stem, at + 1), parts = number_at(stem, stem.size() - digits);
  if (stem[at] != '-' || stem.substr(at + 1 + digits, between.size()) != between || part < 1 || part > parts)
    return {name};
  return {std::string(stem.substr(0, at)) + " in " + std::to_string(parts), part, parts};
}

}  // namespace

std::vector<std::string> choose_gguf_files(const std::vector<std::string>& names, const std::string& where) {
  std::map<std::string, std::map<int, std::string>> models;  // parts by number
  int parts = 0;
  for (const std::string& name : names) {
    if (!name.ends_with(ending) || name.starts_with("mmproj")) continue;
    const PartName found = parse_name(name);
    models[found.model][found.part] = name;
    parts = found.parts;
  }
  if (models.empty()) return {};
  if (models.size() > 1) {
    std::string all;
    for (const auto& [model, files] : models)
      if (all.size() < 300) all += (all.empty() ? "" : ", ") + files.begin()->second;
    throw Error(Reason::ModelUnreadable, where + " has " + std::to_string(models.size()) +
                                             " models in GGUF, expected one: " + printable(all) +
                                             "; take a folder with the file that you want, or with all its parts");
  }
  std::vector<std::string> out;
  const std::map<int, std::string>& files = models.begin()->second;
  for (const auto& [part, name] : files) out.push_back(name);
  for (int part = 1; part <= parts; ++part)
    if (!files.contains(part))
      throw Error(Reason::ModelUnreadable, where + " has " + std::to_string(files.size()) + " of the " +
                                               std::to_string(parts) + " parts of " + printable(out.front()) +
                                               ", part " + std::to_string(part) + " is absent: copy all of them");
  return out;
}

std::vector<std::string> gguf_files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    for (const char* weights : {"model.safetensors", "pytorch_model.bin"})
      if (name == weights || name == std::string(weights) + ".index.json") return {};
    names.push_back(name);
  }
  return choose_gguf_files(names, folder.string());
}

}  // namespace pm::checkpoint
