// SPDX-License-Identifier: Apache-2.0
// Requests with one audio file: as a form (multipart/form-data), as the whole body, or in base64 in a JSON body.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/tasks/task_request.h"

namespace pm::server {

/// A file and the options beside it. The file's text has the lifetime of the form and of the request's body.
struct AudioForm {
  nlohmann::json options;  ///< an object
  std::string_view file;
  std::string decoded;  ///< owner of a file that came in base64
  std::string field;    ///< name of the file in messages
};

/// Reads the body. In a form, the file is "file", and a field whose name ends in [] is a list; a text that is a number
/// or a boolean in JSON counts as such for the fields in `numbers`. In JSON the file is "inputs". Throws ApiError 404
/// when the model does not serve the route, 400 for a body that has no file, or a field twice.
AudioForm read_audio_form(const ServerContext&, const RoutedRequest&, const std::vector<std::string>& numbers);

/// Decodes a file to samples at the model's rate. Throws ApiError: 400 for audio that cannot be read or a checkpoint
/// without a feature extractor, 413 for audio that is too long.
std::vector<float> decode_audio(const ServerContext&, const AudioForm&);

/// Returns the model's inputs for samples. Throws ApiError 400 for audio that is too short, 413 for more frames than
/// one forward pass takes.
Arrays audio_inputs(const ServerContext&, std::span<const float> samples, const std::string& field);

/// Returns the spectrogram [bins, frames] of all samples, of any length, for a model of spectrograms. Throws ApiError
/// 400 for audio that is too short.
std::vector<float> audio_spectrogram(const ServerContext&, std::span<const float> samples, const std::string& field);

/// Frames of audio that one forward pass takes.
constexpr int64_t max_audio_frames = 16384;

/// Describes a route that takes a file with these options.
Operation audio_operation(const ServerContext&, std::string summary, const schema::Properties& own,
                          nlohmann::json reply);

}  // namespace pm::server
