// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/audio_request.h"

#include <algorithm>

#include "base/base64.h"
#include "worker/audio/audio.h"
#include "worker/audio/log_mel.h"
#include "worker/base/error.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/multipart.h"
#include "worker/server/serving/model_schema.h"

namespace pm::server {
namespace {

using nlohmann::json;

const char* const file_in_json = "an audio file in base64, or a URL of the form data:audio/wav;base64,...";

/// Returns a field's text, or the number or boolean that it spells.
json field_value(std::string_view text, bool number) {
  if (number) {
    json value = json::parse(text, nullptr, false);
    if (value.is_number() || value.is_boolean()) return value;
  }
  return text;
}

AudioForm read_parts(const RoutedRequest& call, const std::vector<std::string>& numbers) {
  AudioForm form{json::object(), {}, {}, "file"};
  bool has_file = false;
  for (const Part& part : parse_multipart(call.request.header("content-type"), call.request.body)) {
    if (part.name == "file") {
      if (has_file) throw ApiError(400, "invalid_value", "file is given twice; send one file in a request", "file");
      has_file = true;
      form.file = part.content;
      continue;
    }
    const bool list = part.name.ends_with("[]");
    const std::string name = part.name.substr(0, part.name.size() - (list ? 2 : 0));
    const bool number = std::find(numbers.begin(), numbers.end(), name) != numbers.end();
    const bool given = form.options.contains(name);
    if (given && (!list || !form.options[name].is_array()))
      throw ApiError(400, "invalid_value", name.substr(0, 60) + " is given twice; leave one out", name.substr(0, 60));
    if (list)
      form.options[name].push_back(field_value(part.content, number));
    else
      form.options[name] = field_value(part.content, number);
  }
  if (!has_file) throw ApiError(400, "missing_field", "file is missing; send the audio as the part \"file\"", "file");
  return form;
}

AudioForm read_json(const ServerContext& context, const RoutedRequest& call) {
  AudioForm form{parse_route_body(context, call), {}, {}, "inputs"};
  const auto found = form.options.find("inputs");
  if (found == form.options.end())
    throw ApiError(400, "missing_field", std::string("inputs is missing; allowed: ") + file_in_json, "inputs");
  if (!found->is_string()) throw bad_field("inputs", json_excerpt(*found), file_in_json);
  std::string_view text = found->get_ref<const std::string&>();
  if (text.starts_with("data:")) text.remove_prefix(std::min(text.find(',') + 1, text.size()));
  std::optional<std::string> file = base::decode_base64(text);
  if (text.empty() || !file) throw bad_field("inputs", json_excerpt(*found), file_in_json);
  form.options.erase("inputs");
  form.decoded = *std::move(file);
  return form;
}

}  // namespace

AudioForm read_audio_form(const ServerContext& context, const RoutedRequest& call,
                          const std::vector<std::string>& numbers) {
  refuse_unless_served(context, call);
  const std::string type = call.request.header("content-type");
  if (is_multipart(type)) return read_parts(call, numbers);
  if (type.starts_with("audio/")) return {json::object(), call.request.body, {}, "the body"};
  return read_json(context, call);
}

std::vector<float> decode_audio(const ServerContext& context, const AudioForm& form) {
  const auto& extractor = context.capabilities.extractor;
  if (!extractor)
    throw ApiError(400, "no_feature_extractor",
                   "the checkpoint has no preprocessor_config.json, which defines the preprocessing of audio; send " +
                       context.capabilities.audio + " to POST /forward",
                   form.field);
  const auto decoder = context.acquire_decoder();  // bounds how many files are decoded at once
  try {
    return audio::open(form.decoded.empty() ? form.file : std::string_view(form.decoded), extractor->rate);
  } catch (const Error& error) {
    if (error.reason == Reason::AudioTooLarge)
      throw ApiError(413, "audio_too_large", form.field + ": " + error.what(), form.field);
    if (error.kind == ErrorKind::Request)
      throw ApiError(400, "invalid_audio", form.field + ": " + error.what(), form.field);
    throw;
  }
}

namespace {

/// Calls `make`, whose refusals of the audio become those of the request.
template <class Make>
auto refusing_audio(const std::string& field, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind == ErrorKind::Request) throw ApiError(400, "invalid_audio", field + ": " + error.what(), field);
    throw;
  }
}

}  // namespace

Arrays audio_inputs(const ServerContext& context, std::span<const float> samples, const std::string& field) {
  const Capabilities& can = context.capabilities;
  Arrays inputs = refusing_audio(field, [&] { return (*can.extractor)(samples); });
  const int64_t frames = inputs.begin()->second.shape[can.audio_bins_first ? 2 : 1] / can.audio_stride;
  if (frames > max_audio_frames)
    throw ApiError(413, "audio_too_large",
                   field + " gives " + std::to_string(frames) + " frames; the model takes at most " +
                       std::to_string(max_audio_frames) + " at once, send less audio",
                   field);
  return inputs;
}

std::vector<float> audio_spectrogram(const ServerContext& context, std::span<const float> samples,
                                     const std::string& field) {
  const audio::FeatureExtractor& how = *context.capabilities.extractor;
  return refusing_audio(field, [&] { return audio::LogMel(how.bins, how.frame, how.hop, how.rate)(samples); });
}

Operation audio_operation(const ServerContext& context, std::string summary, const schema::Properties& own,
                          json reply) {
  schema::Properties in_json = own, in_form = own;
  const schema::Property model{"model", model_schema(context.names)};
  in_form.push_back(model);
  in_form.push_back(
      {"file", {{"type", "string"}, {"format", "binary"}, {"description", "WAV, FLAC, OGG or MP3"}}, true});
  for (auto& property : in_form)  // a form spells a list by its name
    if (property.schema.value("type", "") == "array") property.name += "[]";
  in_json.push_back({"inputs",
                     {{"type", "string"},
                      {"contentEncoding", "base64"},
                      {"minLength", 1},
                      {"description", "The file in base64, plain or as a data: URL"}},
                     true});
  Operation made = task_operation(context, std::move(summary), std::move(in_json), std::move(reply), nullptr);
  made.body["properties"].erase("truncate");
  made.body["properties"]["parameters"]["properties"].erase("truncate");
  made.bodies["multipart/form-data"] = schema::object(in_form);
  for (const char* type : {"audio/wav", "audio/flac", "audio/ogg", "audio/mpeg"})
    made.bodies[type] = {{"type", "string"}, {"format", "binary"}};
  return made;
}

}  // namespace pm::server
