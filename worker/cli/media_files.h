// SPDX-License-Identifier: Apache-2.0
// Reads image and audio files as the inputs of the model that generates from them.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "worker/cli/offline_inference.h"

namespace pm::cli {

/// Returns a prompt for each file, prepared as preprocessor_config.json of the checkpoint's folder says. Throws
/// Error{Usage} for a checkpoint without one, Error of the reader for a file that is no image or no audio.
std::vector<Prompt> image_prompts(const std::vector<std::string>& files, const std::filesystem::path& folder);
std::vector<Prompt> audio_prompts(const std::vector<std::string>& files, const std::filesystem::path& folder);

}  // namespace pm::cli
