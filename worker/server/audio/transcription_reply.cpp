// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/transcription_reply.h"

#include <cmath>

#include "base/white_space.h"
#include "worker/server/http/json_response.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Returns hours:minutes:seconds with milliseconds behind `mark`.
std::string clock_time(double seconds, char mark) {
  const int64_t all = std::llround(seconds * 1000);
  char text[48];
  std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld", static_cast<long long>(all / 3'600'000),
                static_cast<long long>(all / 60'000 % 60), static_cast<long long>(all / 1000 % 60), mark,
                static_cast<long long>(all % 1000));
  return text;
}

http::Response plain(const std::string& type, std::string body) {
  http::Response response;
  response.content_type = type;
  response.body = std::move(body);
  return response;
}

/// SubRip numbers its cues from 1 and has a comma before the milliseconds; WebVTT has a header and a point.
std::string subtitles(const std::vector<TimedText>& segments, bool web) {
  std::string all = web ? "WEBVTT\n\n" : "";
  const char mark = web ? '.' : ',';
  size_t number = 0;
  for (const TimedText& segment : segments) {
    if (!web) all += std::to_string(++number) + "\n";
    all += clock_time(segment.start, mark) + " --> " + clock_time(segment.end, mark) + "\n" +
           std::string(base::trimmed(segment.text)) + "\n\n";
  }
  return all;
}

json verbose(const Transcript& transcript, const Granularities& with) {
  json reply{{"task", transcript.task},
             {"language", transcript.language},
             {"duration", transcript.duration},
             {"text", transcript.text}};
  if (with.words) {
    reply["words"] = json::array();
    for (const TimedText& word : transcript.words)
      reply["words"].push_back({{"word", word.text}, {"start", word.start}, {"end", word.end}});
  }
  if (!with.segments) return reply;
  reply["segments"] = json::array();
  for (const TimedText& segment : transcript.segments) {
    json& made = reply["segments"].emplace_back(json{{"id", reply["segments"].size()},
                                                     {"start", segment.start},
                                                     {"end", segment.end},
                                                     {"text", segment.text},
                                                     {"tokens", segment.tokens},
                                                     {"temperature", transcript.temperature}});
    if (segment.mean_logprob) made["avg_logprob"] = *segment.mean_logprob;
  }
  return reply;
}

}  // namespace

http::Response transcript_response(const Transcript& transcript, const std::string& format, const Granularities& with) {
  if (format == "text") return plain("text/plain; charset=utf-8", transcript.text + "\n");
  if (format == "srt") return plain("application/x-subrip; charset=utf-8", subtitles(transcript.segments, false));
  if (format == "vtt") return plain("text/vtt; charset=utf-8", subtitles(transcript.segments, true));
  json reply = format == "verbose_json" ? verbose(transcript, with) : json{{"text", transcript.text}};
  reply["usage"] = {{"type", "duration"}, {"seconds", static_cast<int64_t>(std::ceil(transcript.duration))}};
  return json_response(reply);
}

json transcript_schema() {
  const json seconds = schema::number(0, 1e9, "Seconds");
  const json word = schema::object({{"word", schema::text(), true}, {"start", seconds, true}, {"end", seconds, true}});
  const json segment = schema::object({{"id", schema::integer(0, INT64_MAX), true},
                                       {"start", seconds, true},
                                       {"end", seconds, true},
                                       {"text", schema::text(), true},
                                       {"tokens", schema::list(schema::integer(0, INT64_MAX)), true},
                                       {"temperature", schema::real(), true},
                                       {"avg_logprob", schema::real()}});
  return schema::object({{"text", schema::text(), true},
                         {"task", schema::one_of({"transcribe", "translate"})},
                         {"language", schema::text()},
                         {"duration", seconds},
                         {"words", schema::list(word)},
                         {"segments", schema::list(segment)},
                         {"usage",
                          schema::object({{"type", schema::constant("duration"), true},
                                          {"seconds", schema::integer(0, INT64_MAX), true}}),
                          true}});
}

}  // namespace pm::server
