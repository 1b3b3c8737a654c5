// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/prompted_speech.h"

#include <algorithm>

#include "base/white_space.h"
#include "worker/server/audio/audio_request.h"
#include "worker/server/audio/languages.h"
#include "worker/server/audio/speech_constraints.h"
#include "worker/server/audio/speech_segments.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

constexpr const char* english = "en";  // the models of one language are English

/// The audio of a request as windows of its spectrogram [bins, frames].
class Spectrogram {
 public:
  Spectrogram(const Capabilities& can, std::vector<float> values)
      : input_(can.audio),
        bins_(can.extractor->bins),
        window_(can.extractor->window / can.extractor->hop),
        values_(std::move(values)) {}

  int64_t frames() const { return static_cast<int64_t>(values_.size()) / bins_; }
  /// Returns the number of frames of the window that begins at `first`.
  int64_t left(int64_t first) const { return std::min(window_, frames() - first); }
  /// Returns the window, with zeros behind the audio.
  Arrays window(int64_t first) const {
    std::vector<float> row(static_cast<size_t>(bins_ * window_));
    for (int64_t bin = 0; bin < bins_; ++bin)
      std::copy_n(values_.begin() + bin * frames() + first, left(first), row.begin() + bin * window_);
    return {{input_, {{1, bins_, window_}, std::move(row)}}};
  }

 private:
  std::string input_;
  int64_t bins_, window_;
  std::vector<float> values_;
};

/// Transcribes the audio of one request.
class Transcriber {
 public:
  Transcriber(const ServerContext& context, const RoutedRequest& call, const SpeechTask& task, const std::string& field,
              const std::shared_ptr<void>& admitted)
      : context_(context),
        call_(call),
        task_(task),
        field_(field),
        admitted_(admitted),
        speech_(*context.capabilities.speech),
        end_(context.eos.empty() ? speech_.no_timestamps : static_cast<int32_t>(context.eos.front())) {}

  std::optional<Transcript> run(std::span<const float> samples) {
    const audio::FeatureExtractor& extractor = *context_.capabilities.extractor;
    const double rate = static_cast<double>(extractor.rate), duration = static_cast<double>(samples.size()) / rate;
    transcript_ = {.task = task_.task, .temperature = task_.writing.temperature, .duration = duration};
    if (!(task_.times ? write_windows(samples) : write_whole(samples))) return std::nullopt;
    transcript_.text = base::trimmed(context_.tokenizer->decode(texts_));
    transcript_.language = language_name(language_);
    return std::move(transcript_);
  }

 private:
  /// Runs one window. Returns nothing when the client is gone.
  std::optional<WrittenSpeech> write(SpeechWindow window, const WritingOptions& options) {
    std::vector<SpeechWindow> one;
    one.push_back(std::move(window));
    auto written = write_speech(context_, call_, std::move(one), options, field_, admitted_);
    if (!written) return std::nullopt;
    return std::move(written->front());
  }

  /// Sets the language, which is recognized in the window where nothing names it. Returns false when the client is
  /// gone.
  bool know_language(const Arrays& window) {
    if (!language_.empty()) return true;
    language_ = !task_.language.empty()     ? task_.language
                : speech_.languages.empty() ? english
                                            : language_code(speech_.language).value_or("");
    if (!language_.empty()) return true;
    const auto written = write({window, {}, language_constraint(speech_)}, {.max_new_tokens = 1, .plain = true});
    if (!written) return false;
    for (const auto& [code, id] : speech_.languages)
      if (written->ids == std::vector{id}) language_ = code;
    return true;
  }

  /// Returns the beginning of the decoder's sequence.
  std::vector<int32_t> start() const {
    std::vector<int32_t> ids;
    if (!task_.prompt.empty() && speech_.previous) {
      std::vector<int32_t> text =
          context_.tokenizer->encode(" " + std::string(base::trimmed(task_.prompt)), /*special=*/false);
      if (const auto most = static_cast<size_t>(context_.max_model_len / 2 - 1); text.size() > most)
        text.erase(text.begin(), text.end() - static_cast<std::ptrdiff_t>(most));  // the end is the nearest
      ids.push_back(*speech_.previous);
      ids.insert(ids.end(), text.begin(), text.end());
    }
    ids.push_back(static_cast<int32_t>(context_.decoder_start));
    if (const auto language = speech_.languages.find(language_); language != speech_.languages.end()) {
      ids.push_back(language->second);
      if (const auto task = speech_.tasks.find(task_.task); task != speech_.tasks.end()) ids.push_back(task->second);
    }
    if (!task_.times) ids.push_back(speech_.no_timestamps);
    return ids;
  }

  /// Returns the tokens that are text.
  std::vector<int32_t> text_of(const std::vector<int32_t>& ids) const {
    std::vector<int32_t> text;
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(text),
                 [&](int32_t id) { return id < speech_.no_timestamps && id != end_; });
    return text;
  }

  bool write_whole(std::span<const float> samples) {
    Arrays source = audio_inputs(context_, samples, field_);
    if (!know_language(source)) return false;
    const auto written = write({std::move(source), start(), {}}, task_.writing);
    if (!written) return false;
    texts_ = text_of(written->ids);
    return true;
  }

  bool write_windows(std::span<const float> samples) {
    const audio::FeatureExtractor& extractor = *context_.capabilities.extractor;
    const Spectrogram spectrogram(context_.capabilities, audio_spectrogram(context_, samples, field_));
    const int64_t stride = context_.capabilities.audio_stride;
    const double frame = static_cast<double>(extractor.hop) / static_cast<double>(extractor.rate);
    const auto constraint = times_constraint(speech_, end_);
    for (int64_t first = 0; first < spectrogram.frames();) {
      Arrays window = spectrogram.window(first);
      if (!know_language(window)) return false;
      auto written = write({std::move(window), start(), constraint}, task_.writing);
      if (!written) return false;
      std::erase(written->ids, end_);
      const AnsweredWindow answered =
          split_segments(written->ids, speech_.first_timestamp(), spectrogram.left(first), stride);
      for (const SpeechSegment& segment : answered.segments) {
        const std::vector<int32_t> text = text_of(segment.tokens);
        texts_.insert(texts_.end(), text.begin(), text.end());
        const auto seconds = [&](int64_t step) { return static_cast<double>(first + step * stride) * frame; };
        transcript_.segments.push_back({context_.tokenizer->decode(text),
                                        seconds(segment.start),
                                        seconds(segment.end),
                                        {segment.tokens.begin(), segment.tokens.end()},
                                        written->mean_logprob});
      }
      first += answered.frames;
    }
    return true;
  }

  const ServerContext& context_;
  const RoutedRequest& call_;
  const SpeechTask& task_;
  const std::string& field_;
  const std::shared_ptr<void>& admitted_;
  const SpeechTokens& speech_;
  int32_t end_;
  std::string language_;        ///< code
  std::vector<int32_t> texts_;  ///< of all segments
  Transcript transcript_;
};

}  // namespace

std::string read_speech_language(const SpeechTokens& speech, const std::string& given) {
  if (given.empty()) return "";
  const std::string code = language_code(given).value_or(given);
  if (speech.languages.contains(code)) return code;
  if (speech.languages.empty() && code == english) return code;
  std::string known;
  for (const auto& [name, id] : speech.languages) known += (known.empty() ? "" : ", ") + name;
  throw bad_field("language", given, known.empty() ? "en; the model has one language" : "one of " + known);
}

std::optional<Transcript> transcribe_prompted(const ServerContext& context, const RoutedRequest& call,
                                              const SpeechTask& task, std::span<const float> samples,
                                              const std::string& field, const std::shared_ptr<void>& admitted) {
  return Transcriber(context, call, task, field, admitted).run(samples);
}

}  // namespace pm::server
