// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/media_files.h"

#include <fstream>
#include <iterator>

#include "worker/audio/audio.h"
#include "worker/audio/feature_extractor.h"
#include "worker/base/error.h"
#include "worker/image/processor.h"

namespace pm::cli {

namespace {

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(Reason::Usage, file + " cannot be opened; give the path of a file");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Calls `read` with the bytes of each file. Errors name the file.
template <typename Read>
std::vector<Prompt> prompts_of_files(const std::vector<std::string>& files, const Read& read) {
  std::vector<Prompt> prompts;
  for (const std::string& file : files) {
    try {
      prompts.push_back({{}, read(bytes_of(file))});
    } catch (const Error& error) {
      if (error.reason == Reason::Usage) throw;
      throw Error(error.reason, file + ": " + error.what());
    }
  }
  return prompts;
}

[[noreturn]] void refuse_unprepared(const std::filesystem::path& folder, const std::string& what) {
  throw Error(Reason::Usage, folder.string() + " has no preprocessor_config.json, which defines how " + what +
                                 " is prepared; give tensors with --inputs");
}

}  // namespace

std::vector<Prompt> image_prompts(const std::vector<std::string>& files, const std::filesystem::path& folder) {
  if (files.empty()) return {};
  const auto processor = image::Processor::read(folder);
  if (!processor) refuse_unprepared(folder, "an image");
  if (processor->patches)
    throw Error(Reason::Usage, folder.string() +
                                   " is of a vision-language model, whose images --image does not read; serve it and "
                                   "send them to POST /v1/chat/completions");
  return prompts_of_files(
      files, [&](const std::string& bytes) { return Arrays{{"pixel_values", (*processor)(image::open(bytes))}}; });
}

std::vector<Prompt> audio_prompts(const std::vector<std::string>& files, const std::filesystem::path& folder) {
  if (files.empty()) return {};
  const auto extractor = audio::FeatureExtractor::read(folder);
  if (!extractor) refuse_unprepared(folder, "audio");
  return prompts_of_files(files,
                          [&](const std::string& bytes) { return (*extractor)(audio::open(bytes, extractor->rate)); });
}

}  // namespace pm::cli
