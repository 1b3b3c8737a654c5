// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/transcription.h"

#include <algorithm>

#include "worker/audio/windows.h"
#include "worker/server/audio/audio_request.h"
#include "worker/server/audio/prompted_speech.h"
#include "worker/server/audio/speech_writer.h"
#include "worker/server/audio/transcription_reply.h"
#include "worker/server/generation/event_stream.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/forward_runner.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr double default_chunk_seconds = 30, max_chunk_seconds = 600, strides_per_chunk = 6;
constexpr double longest_segment = 10, longest_pause = 1;  // seconds
constexpr double max_temperature = 2;

struct TranscriptionRequest {
  std::string format, language, prompt;
  Granularities granularities;
  audio::WindowLengths lengths;
  WritingOptions writing;
};

double read_seconds(Fields& fields, const char* name, double absent, double most) {
  const json* value = fields.find(name);
  if (!value) return absent;
  if (!value->is_number() || *value < 0 || *value > most)
    throw bad_field(name, json_excerpt(*value), "seconds from 0 to " + std::to_string(static_cast<int64_t>(most)));
  return *value;
}

/// Returns the samples for which the model has one frame.
int64_t samples_per_frame(const Capabilities& can) {
  const bool samples = !can.extractor || can.extractor->features == audio::Features::Samples;
  return can.audio_stride * (samples ? 1 : can.extractor->hop);
}

/// Reads chunk_length_s and stride_length_s as transformers' pipeline has them. Windows end where the limit of frames
/// of one forward pass would be exceeded. Texts of windows that overlap cannot be joined, so that windows of a model
/// that generates stand side by side.
audio::WindowLengths read_lengths(Fields& fields, const ServerContext& context) {
  const Capabilities& can = context.capabilities;
  if (can.speech) {  // windows have one length, and times say where the next begins
    fields.only("chunk_length_s", can.extractor->window / can.extractor->rate);
    fields.only("stride_length_s", 0);
    return {};
  }
  const bool writes = can.writes_speech();
  const int64_t rate = can.extractor ? can.extractor->rate : 1, align = samples_per_frame(can),
                frames = writes ? std::min(max_audio_frames, context.max_model_len) : max_audio_frames;
  const double most = static_cast<double>(frames * align) / static_cast<double>(rate);
  const double chunk =
      read_seconds(fields, "chunk_length_s", std::min(default_chunk_seconds, most), std::min(max_chunk_seconds, most));
  if (writes) {
    fields.only("stride_length_s", 0);
    return {audio::aligned_samples(chunk, rate, align), 0, 0};
  }
  const double stride = read_seconds(fields, "stride_length_s", chunk / strides_per_chunk, max_chunk_seconds);
  const audio::WindowLengths lengths{audio::aligned_samples(chunk, rate, align),
                                     audio::aligned_samples(stride, rate, align),
                                     audio::aligned_samples(stride, rate, align)};
  if (lengths.chunk <= lengths.left + lengths.right)
    throw bad_field("stride_length_s", std::to_string(stride),
                    "less than half of chunk_length_s, which is " + std::to_string(chunk));
  return lengths;
}

Granularities read_granularities(Fields& fields, const std::string& format, bool writes) {
  const char* name = "timestamp_granularities";
  const json* value = fields.find(name);
  if (!value) return {};
  const json list = value->is_string() ? json::array({*value}) : *value;
  if (!list.is_array()) throw bad_field(name, json_excerpt(*value), "word, segment, or a list of these");
  Granularities with{false, false};
  for (const json& word : list) {
    if (word != "word" && word != "segment") throw bad_field(name, json_excerpt(word), "word or segment");
    (word == "word" ? with.words : with.segments) = true;
  }
  if (with.words && writes)
    throw bad_field(name, "word", "segment; a model that generates the text tells no times of words");
  if (format != "verbose_json")
    throw ApiError(400, "invalid_value",
                   std::string(name) + " needs response_format verbose_json; response_format is " + format, name);
  return with;
}

WritingOptions read_writing(Fields& fields) {
  WritingOptions options;
  if (const json* value = fields.find("temperature")) {
    if (!value->is_number() || *value < 0 || *value > max_temperature)
      throw bad_field("temperature", json_excerpt(*value), "a number from 0 to 2");
    options.temperature = value->get<double>();
  }
  if (const json* value = fields.find("max_new_tokens")) {
    if (!value->is_number_integer() || *value < 1)
      throw bad_field("max_new_tokens", json_excerpt(*value), "at least 1");
    options.max_new_tokens = value->get<int64_t>();
  }
  return options;
}

TranscriptionRequest read_request(const ServerContext& context, const json& options) {
  Fields fields(options);
  read_common_fields(fields, context);
  TranscriptionRequest request;
  request.format = fields.text("response_format").value_or("json");
  if (std::find(transcript_formats.begin(), transcript_formats.end(), request.format) == transcript_formats.end())
    throw bad_field("response_format", json_excerpt(request.format), "json, text, verbose_json, srt or vtt");
  const bool writes = context.capabilities.writes_speech();
  request.granularities = read_granularities(fields, request.format, writes);
  request.language = fields.text("language").value_or("");
  request.prompt = fields.text("prompt").value_or("");
  const auto& speech = context.capabilities.speech;
  if (speech) request.language = read_speech_language(*speech, request.language);
  if (!request.prompt.empty() && !(speech && speech->previous))
    throw ApiError(400, "invalid_value", "prompt is given, and the model reads audio only; leave it out", "prompt");
  if (writes)
    request.writing = read_writing(fields);
  else if (const json* temperature = fields.find("temperature"); temperature && *temperature != 0)
    throw bad_field("temperature", json_excerpt(*temperature), "0; a CTC model does not sample");
  fields.only("stream", false);
  request.lengths = read_lengths(fields, context);
  fields.refuse_others();
  return request;
}

/// Returns the most likely token of each frame, window by window.
std::vector<int64_t> frame_tokens(const ServerContext& context, const RoutedRequest& call,
                                  std::span<const float> samples, const TranscriptionRequest& request,
                                  const std::string& field) {
  const auto windows = audio::split_windows(static_cast<int64_t>(samples.size()), request.lengths);
  std::vector<ForwardBatch> batches;
  for (const audio::Window& window : windows)
    batches.push_back(
        {audio_inputs(context, samples.subspan(static_cast<size_t>(window.first), static_cast<size_t>(window.length)),
                      field),
         {"logits"}});
  const auto outputs = run_forward_batches(context, call, std::move(batches));
  std::vector<int64_t> tokens;
  for (size_t w = 0; w < windows.size(); ++w) {
    const std::vector<float>& logits = float_values(outputs[w], "logits", 3);
    const auto& shape = outputs[w].at("logits").shape;
    const audio::KeptFrames kept = windows[w].kept(shape[1], context.capabilities.audio_stride);
    for (int64_t frame = kept.first; frame < kept.end; ++frame) {
      const auto first = logits.begin() + frame * shape[2];
      tokens.push_back(std::max_element(first, first + shape[2]) - first);
    }
  }
  return tokens;
}

/// Converts frames to seconds with the roundings of transformers' pipeline.
struct FrameTimes {
  int64_t stride, rate;
  double seconds(int64_t frames) const { return static_cast<double>(frames * stride) / static_cast<double>(rate); }
};

/// Groups words into segments: a pause or the length of the segment ends one.
std::vector<TimedText> segments_of(const CtcDecoder& decoder, const std::vector<int64_t>& tokens,
                                   const std::vector<CtcWord>& words, const FrameTimes& times) {
  std::vector<TimedText> segments;
  for (size_t first = 0; first < words.size();) {
    size_t end = first + 1;
    while (end < words.size() && times.seconds(words[end].start - words[end - 1].end) <= longest_pause &&
           times.seconds(words[end].end - words[first].start) <= longest_segment)
      ++end;
    const int64_t start = words[first].start, stop = words[end - 1].end;
    const auto own = std::span(tokens).subspan(static_cast<size_t>(start), static_cast<size_t>(stop - start));
    segments.push_back(
        {decoder.decode(own).text, times.seconds(start), times.seconds(stop), decoder.collapse(own), {}});
    first = end;
  }
  return segments;
}

[[noreturn]] void refuse_without_tokenizer() {
  throw ApiError(400, "no_tokenizer",
                 "the model's folder has no tokenizer that is served; POST /forward returns logits");
}

/// Transcribes or translates with a model that has task tokens.
http::Response run_speech_task(const ServerContext& context, const RoutedRequest& call, const std::string& task,
                               const TranscriptionRequest& request, const AudioForm& form,
                               const std::shared_ptr<void>& admitted) {
  if (!context.tokenizer) refuse_without_tokenizer();
  const std::vector<float> samples = decode_audio(context, form);
  const bool fits = static_cast<int64_t>(samples.size()) <= context.capabilities.extractor->window,
             plain = request.format == "json" || request.format == "text";
  const SpeechTask speech{.task = task,
                          .language = request.language,
                          .prompt = request.prompt,
                          .times = !fits || !plain,
                          .writing = request.writing};
  const auto transcript = transcribe_prompted(context, call, speech, samples, form.field, admitted);
  return transcript ? transcript_response(*transcript, request.format, request.granularities) : client_gone_response();
}

/// Transcribes with a model that generates text: each window gives a segment.
http::Response transcribe_by_writing(const ServerContext& context, const RoutedRequest& call,
                                     const TranscriptionRequest& request, const AudioForm& form,
                                     const std::shared_ptr<void>& admitted) {
  if (!context.tokenizer) refuse_without_tokenizer();
  const std::vector<float> samples = decode_audio(context, form);
  const auto windows = audio::split_windows(static_cast<int64_t>(samples.size()), request.lengths);
  std::vector<SpeechWindow> inputs;
  for (const audio::Window& window : windows) {
    const auto own = std::span(samples).subspan(static_cast<size_t>(window.first), static_cast<size_t>(window.length));
    inputs.push_back({audio_inputs(context, own, form.field), {}, {}});
  }
  const auto written = write_speech(context, call, std::move(inputs), request.writing, form.field, admitted);
  if (!written) return client_gone_response();
  const auto rate = static_cast<double>(context.capabilities.extractor->rate);
  Transcript transcript{.language = request.language, .duration = static_cast<double>(samples.size()) / rate};
  std::vector<int32_t> all;
  for (size_t w = 0; w < windows.size(); ++w) {
    const std::vector<int32_t>& ids = (*written)[w].ids;
    std::vector<int32_t> sequence;  // with its start token, as transformers decodes it
    if (context.decoder_start >= 0) sequence.push_back(static_cast<int32_t>(context.decoder_start));
    sequence.insert(sequence.end(), ids.begin(), ids.end());
    all.insert(all.end(), sequence.begin(), sequence.end());
    transcript.segments.push_back({context.tokenizer->decode(sequence),
                                   static_cast<double>(windows[w].first) / rate,
                                   static_cast<double>(windows[w].first + windows[w].length) / rate,
                                   {ids.begin(), ids.end()},
                                   {}});
  }
  transcript.text = context.tokenizer->decode(all);
  return transcript_response(transcript, request.format, request.granularities);
}

/// Transcribes with a model that scores classes of frames.
http::Response transcribe_by_frames(const ServerContext& context, const RoutedRequest& call,
                                    const TranscriptionRequest& request, const AudioForm& form) {
  const auto& decoder = context.capabilities.ctc;
  if (!decoder)
    throw ApiError(400, "no_tokenizer",
                   "the model has no tokenizer for its classes: " + context.capabilities.ctc_refusal +
                       "; POST /forward returns logits");
  const std::vector<float> samples = decode_audio(context, form);
  const std::vector<int64_t> tokens = frame_tokens(context, call, samples, request, form.field);
  const CtcText text = decoder->decode(tokens);
  const FrameTimes times{context.capabilities.audio_stride, context.capabilities.extractor->rate};
  const double duration = static_cast<double>(samples.size()) / static_cast<double>(times.rate);
  Transcript transcript{.text = text.text, .language = request.language, .duration = duration};
  for (const CtcWord& word : text.words)
    transcript.words.push_back({word.word, times.seconds(word.start), times.seconds(word.end), {}, {}});
  transcript.segments = segments_of(*decoder, tokens, text.words, times);
  return transcript_response(transcript, request.format, request.granularities);
}

http::Response answer(const ServerContext& context, const RoutedRequest& call, const std::string& task) {
  const auto admitted = context.admit();
  const AudioForm form =
      read_audio_form(context, call, {"temperature", "chunk_length_s", "stride_length_s", "stream", "max_new_tokens"});
  const TranscriptionRequest request = read_request(context, form.options);
  const Capabilities& can = context.capabilities;
  if (can.speech) return run_speech_task(context, call, task, request, form, admitted);
  return can.writes_speech() ? transcribe_by_writing(context, call, request, form, admitted)
                             : transcribe_by_frames(context, call, request, form);
}

Operation describe(const ServerContext& context, std::string summary) {
  const bool writes = context.capabilities.writes_speech(), prompted = context.capabilities.speech.has_value(),
             reads_prompt = prompted && context.capabilities.speech->previous;
  schema::Properties own{
      {"response_format", schema::one_of(transcript_formats, "Form of the reply; default json")},
      {"language",
       schema::text(prompted ? "Code or English name of the language of the audio; it is recognized by default"
                             : "Language of the audio, returned in verbose_json; the model has one of its own")},
      {"prompt", reads_prompt ? schema::text("Text that went before the audio; its last tokens are read")
                              : schema::described(schema::one_of({""}), "The model reads no prompt")},
      {"temperature", writes ? schema::number(0, max_temperature, "Above 0, tokens are sampled")
                             : schema::integer(0, 0, "A CTC model does not sample")},
      {"timestamp_granularities",
       schema::list(writes ? schema::one_of({"segment"}) : schema::one_of({"word", "segment"}), 0, 0,
                    "Only with verbose_json; default segment")},
      {"stream", schema::constant(false)},
      {"chunk_length_s",
       prompted ? schema::constant(context.capabilities.extractor->window / context.capabilities.extractor->rate)
                : schema::number(0, max_chunk_seconds, "Seconds of a window of long audio; default 30", true)},
      {"stride_length_s", writes
                              ? schema::constant(0)
                              : schema::number(0, max_chunk_seconds,
                                               "Seconds of context on both sides of a window; default a sixth of it")}};
  if (writes)
    own.push_back({"max_new_tokens", schema::integer(1, INT64_MAX, "Maximum number of tokens of each window")});
  Operation made = audio_operation(context, std::move(summary), own, transcript_schema());
  for (const char* type : {"text/plain", "application/x-subrip", "text/vtt"}) made.replies[type] = schema::text();
  return made;
}

}  // namespace

Operation describe_transcription(const ServerContext& context) {
  return describe(context, "Transcription, compatible with OpenAI's API");
}

Operation describe_translation(const ServerContext& context) {
  return describe(context, "Translation of speech to English, compatible with OpenAI's API");
}

http::Response transcribe(const ServerContext& context, const RoutedRequest& call) {
  return answer(context, call, "transcribe");
}

http::Response translate(const ServerContext& context, const RoutedRequest& call) {
  return answer(context, call, "translate");
}

}  // namespace pm::server
