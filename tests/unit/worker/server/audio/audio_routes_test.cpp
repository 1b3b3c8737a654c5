// SPDX-License-Identifier: Apache-2.0
// Tests POST /v1/audio/transcriptions, /v1/audio/classifications and /embed over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/base64.h"
#include "tests/unit/worker/audio/files.h"
#include "tests/unit/worker/server/support/task_test_server.h"
#include "tests/unit/worker/tokenizer/tokenizer_files.h"

namespace pm::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t rate = 1000, stride = 10, letters = 5;

std::string message_of(const json& error) { return error.value("message", ""); }

/// A model that hears: 1000 samples per second, 100 frames; letters are "_ABC" and a space.
server::Capabilities hearing(const std::string& task) {
  auto can = capabilities_of(task);
  can.takes_text = false;
  can.audio = "input_values";
  can.audio_stride = stride;
  can.extractor = audio::FeatureExtractor{.rate = rate, .do_normalize = false};
  TempFolder folder;
  std::ofstream(folder.path() / "vocab.json") << R"({"<pad>": 0, "A": 1, "B": 2, "C": 3, "|": 4})";
  can.ctc = CtcDecoder::find(folder.path());
  can.labels = {"dog", "cat", "sea"};
  return can;
}

/// A frame's letter is the first sample's tenth, so that the sound spells the text.
Arrays spelled(const engine::ForwardRequest& request) {
  const auto& samples = std::get<std::vector<float>>(request.inputs.at("input_values").values);
  const size_t frames = samples.size() / stride;
  std::vector<float> logits(frames * letters);
  for (size_t f = 0; f < frames; ++f) {
    const auto letter = static_cast<size_t>(std::lround(samples[f * stride] * 10));
    logits[f * letters + std::min<size_t>(letter, letters - 1)] = 1;
  }
  return {{"logits", floats({1, static_cast<int64_t>(frames), letters}, logits)}};
}

/// Returns the WAV whose frames spell these letters.
std::string sound(const std::vector<int>& spelling) {
  std::vector<float> samples;
  for (int letter : spelling) samples.insert(samples.end(), stride, static_cast<float>(letter) / 10);
  return audio_file(samples, rate, 1, SF_FORMAT_WAV | SF_FORMAT_FLOAT);
}

const std::vector<int> abc{0, 1, 1, 0, 1, 2, 4, 4, 0, 3, 0};

struct Transcriptions : testing::Test {
  Transcriptions() { tasked.engine.answer_forward(spelled); }
  httplib::Result post(const std::string& file, const httplib::MultipartFormDataItems& fields = {}) {
    httplib::MultipartFormDataItems items = fields;
    items.push_back({"file", file, "sound.wav", "audio/wav"});
    return tasked.client().Post("/v1/audio/transcriptions", items);
  }
  json refused(const std::string& name, const std::string& value, int status = 400) {
    return error_of(post(sound(abc), {{name, value, "", ""}}), status);
  }
  TaskTestServer tasked{hearing("transcribe")};
};

TEST_F(Transcriptions, JsonHasTheTextAndTheSeconds) {
  const auto reply = post(sound(abc), {{"model", "org/tiny", "", ""}, {"temperature", "0.0", "", ""}});
  ASSERT_EQ(reply->status, 200) << reply->body;
  EXPECT_EQ(json::parse(reply->body), json::parse(R"({"text": "AAB C", "usage": {"type": "duration", "seconds": 1}})"));
}

TEST_F(Transcriptions, VerboseJsonHasWordsAndSegments) {
  const auto reply = json::parse(post(sound(abc), {{"response_format", "verbose_json", "", ""},
                                                   {"timestamp_granularities[]", "word", "", ""},
                                                   {"timestamp_granularities[]", "segment", "", ""}})
                                     ->body);
  EXPECT_EQ(reply["words"], json::parse(R"([{"word": "AAB", "start": 0.01, "end": 0.06},
                                            {"word": "C", "start": 0.09, "end": 0.1}])"));
  ASSERT_EQ(reply["segments"].size(), 1u);
  EXPECT_EQ(reply["segments"][0]["text"], "AAB C");
  EXPECT_EQ(reply["segments"][0]["tokens"], json({1, 1, 2, 4, 3}));
  EXPECT_NEAR(reply["duration"].get<double>(), 0.11, 1e-9);
}

TEST_F(Transcriptions, APauseEndsASegmentAndSubtitlesHaveACueForEach) {
  std::vector<int> spelling{1, 4};
  spelling.resize(150);
  spelling.push_back(2);
  EXPECT_EQ(post(sound(spelling), {{"response_format", "srt", "", ""}})->body,
            "1\n00:00:00,000 --> 00:00:00,010\nA\n\n2\n00:00:01,500 --> 00:00:01,510\nB\n\n");
  EXPECT_EQ(post(sound(spelling), {{"response_format", "vtt", "", ""}})->body,
            "WEBVTT\n\n00:00:00.000 --> 00:00:00.010\nA\n\n00:00:01.500 --> 00:00:01.510\nB\n\n");
  EXPECT_EQ(post(sound(spelling), {{"response_format", "text", "", ""}})->body, "A B\n");
}

TEST_F(Transcriptions, LongAudioIsHeardInWindowsWithContext) {
  std::vector<int> spelling;
  for (int i = 0; i < 250; ++i) spelling.push_back(i % 2 == 0 ? 1 + i % 3 : 0);
  const auto whole = json::parse(post(sound(spelling))->body)["text"];
  EXPECT_EQ(tasked.engine.forward_requests().size(), 1u);
  const auto parts =
      json::parse(post(sound(spelling), {{"chunk_length_s", "1", "", ""}, {"stride_length_s", "0.1", "", ""}})->body);
  EXPECT_EQ(parts["text"], whole);
  EXPECT_EQ(tasked.engine.forward_requests().size(), 1u + 3u);  // [0, 1], [0.8, 1.8], [1.6, 2.5]
}

TEST_F(Transcriptions, TheFileMayBeTheBodyOrStandInJson) {
  const auto text = [](const httplib::Result& reply) { return json::parse(reply->body).value("text", reply->body); };
  EXPECT_EQ(text(tasked.client().Post("/v1/audio/transcriptions", sound(abc), "audio/wav")), "AAB C");
  const std::string coded = base::encode_base64(sound(abc));
  EXPECT_EQ(text(tasked.post("/v1/audio/transcriptions", {{"inputs", coded}})), "AAB C");
  EXPECT_EQ(text(tasked.post("/v1/audio/transcriptions", {{"inputs", "data:audio/wav;base64," + coded}})), "AAB C");
  EXPECT_EQ(error_of(tasked.post("/v1/audio/transcriptions", {{"inputs", "?"}}), 400)["param"], "inputs");
  EXPECT_EQ(error_of(tasked.post("/v1/audio/transcriptions", json::object()), 400)["code"], "missing_field");
}

TEST_F(Transcriptions, WhatAModelCannotHonourIsRefused) {
  EXPECT_THAT(message_of(refused("prompt", "Once upon")), HasSubstr("the model reads audio only"));
  EXPECT_THAT(message_of(refused("temperature", "0.7")), HasSubstr("temperature is 0.7"));
  EXPECT_THAT(message_of(refused("response_format", "xml")), HasSubstr("verbose_json"));
  EXPECT_THAT(message_of(refused("timestamp_granularities[]", "word")),
              HasSubstr("needs response_format verbose_json"));
  EXPECT_THAT(message_of(refused("stride_length_s", "20")), HasSubstr("less than half of chunk_length_s"));
  EXPECT_THAT(message_of(refused("chunk_length_s", "long")), HasSubstr("chunk_length_s is \"long\""));
  EXPECT_EQ(refused("stream", "true")["param"], "stream");
  EXPECT_EQ(refused("temprature", "0")["code"], "unknown_field");
  EXPECT_EQ(refused("model", "other", 404)["code"], "model_not_found");
  EXPECT_EQ(refused("file", "second")["code"], "invalid_value");
}

TEST_F(Transcriptions, AudioThatCannotBeReadIsRefused) {
  EXPECT_EQ(error_of(post("GIF89a"), 400)["code"], "invalid_audio");
  EXPECT_THAT(message_of(error_of(post(wav({.channels = 48}, std::string(9600, '\0'))), 400)),
              HasSubstr("48 channels"));
  EXPECT_THAT(message_of(error_of(post(wav({}, "")), 400)), HasSubstr("0 s"));
  const std::string hours = audio_file(std::vector<float>(3600 * rate), rate, 1, SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  EXPECT_EQ(error_of(post(hours), 413)["code"], "audio_too_large");
  EXPECT_EQ(error_of(tasked.client().Post("/v1/audio/transcriptions", "--", "multipart/form-data"), 400)["code"],
            "malformed_request");
  EXPECT_EQ(error_of(tasked.client().Post("/v1/audio/transcriptions",
                                          httplib::MultipartFormDataItems{{"model", "org/tiny", "", ""}}),
                     400)["param"],
            "file");
}

TEST(Audio, ClassesAreThoseOfTheModel) {
  TaskTestServer tasked(hearing("classify-audio"));
  tasked.engine.answer_forward([](const auto&) { return Arrays{{"logits", floats({1, 3}, {0, 2, 1})}}; });
  const httplib::MultipartFormDataItems items{{"file", sound(abc), "a.wav", ""}, {"top_k", "2", "", ""}};
  const auto reply = json::parse(tasked.client().Post("/v1/audio/classifications", items)->body);
  ASSERT_EQ(reply.size(), 2u) << reply;
  EXPECT_EQ(reply[0]["label"], "cat");
  EXPECT_NEAR(reply[0]["score"].get<double>(), 0.6652, 1e-4);
  EXPECT_EQ(reply[1]["label"], "sea");
  EXPECT_EQ(error_of(tasked.client().Post("/v1/audio/transcriptions", items), 404)["code"], "not_served");
}

TEST(Audio, AnEmbeddingIsAVectorOrTheMeanOfTheFrames) {
  auto can = hearing("embed");
  can.audio_embedding = {"last_hidden_state", {server::Pooling::Mean}};
  TaskTestServer frames(can);
  frames.engine.answer_forward(
      [](const auto&) { return Arrays{{"last_hidden_state", floats({1, 2, 2}, {1, 2, 5, 6})}}; });
  const httplib::MultipartFormDataItems raw{{"file", sound(abc), "a.wav", ""}, {"normalize", "false", "", ""}};
  EXPECT_THAT(json::parse(frames.client().Post("/embed", raw)->body)["data"][0]["embedding"], ElementsAre(3, 4));
  can.audio_embedding = {"embeddings"};
  TaskTestServer whole(can);
  whole.engine.answer_forward([](const auto&) { return Arrays{{"embeddings", floats({1, 2}, {3, 4})}}; });
  const auto unit = json::parse(whole.client().Post("/embed", sound(abc), "audio/wav")->body);
  EXPECT_NEAR(unit["data"][0]["embedding"][0].get<double>(), 0.6, 1e-6);
  EXPECT_EQ(unit["model"], "org/tiny");
}

TEST(Audio, WithoutFilesOfTheCheckpointTheReasonIsGiven) {
  auto can = hearing("transcribe");
  can.extractor.reset();
  TaskTestServer deaf(can);
  EXPECT_EQ(error_of(deaf.client().Post("/v1/audio/transcriptions", sound(abc), "audio/wav"), 400)["code"],
            "no_feature_extractor");
  can = hearing("transcribe");
  can.ctc.reset();
  can.ctc_refusal = "the checkpoint has no vocab.json";
  TaskTestServer dumb(can);
  EXPECT_THAT(message_of(error_of(dumb.client().Post("/v1/audio/transcriptions", sound(abc), "audio/wav"), 400)),
              HasSubstr("no vocab.json"));
}

TEST(Audio, MoreFramesThanAForwardPassTakesAreRefused) {
  TaskTestServer tasked(hearing("classify-audio"));
  const std::string minutes = audio_file(std::vector<float>(170 * rate), rate, 1, SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  const auto error = error_of(tasked.client().Post("/v1/audio/classifications", minutes, "audio/wav"), 413);
  EXPECT_THAT(message_of(error), HasSubstr("17000 frames; the model takes at most 16384"));
}

}  // namespace
}  // namespace pm::test
