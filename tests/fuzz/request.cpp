// SPDX-License-Identifier: Apache-2.0
// Requests to every route that runs the model, over a model of each task that answers at once: what is wrong with a
// request is an error with a status below 500, and every reply is JSON. The input's first two bytes choose the model
// and the route, the rest is the body.
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/fuzz/input.h"
#include "worker/server/audio/audio_classification.h"
#include "worker/server/audio/audio_embedding.h"
#include "worker/server/audio/transcription.h"
#include "worker/server/embedding/embeddings.h"
#include "worker/server/embedding/rerank.h"
#include "worker/server/embedding/score.h"
#include "worker/server/embedding/similarity.h"
#include "worker/server/embedding/sparse_embeddings.h"
#include "worker/server/generation/chat.h"
#include "worker/server/generation/completions.h"
#include "worker/server/generation/generate.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/http/api_error.h"
#include "worker/server/images/detect.h"
#include "worker/server/images/prompt_images.h"
#include "worker/server/images/segment_images.h"
#include "worker/server/tasks/classify.h"
#include "worker/server/tasks/fill_mask.h"
#include "worker/server/tasks/forward_tensors.h"
#include "worker/server/tasks/question_answering.h"
#include "worker/server/tasks/tokenize.h"
#include "worker/server/wire/messages.h"
#include "worker/server/wire/response_store.h"
#include "worker/server/wire/responses.h"

namespace {

using namespace pm;
using namespace pm::server;
using nlohmann::json;

constexpr int64_t vocabulary_size = 259, window_size = 64, label_names = 3, audio_rate = 8000, audio_stride = 16;

/// An image's place in a prompt is the digit 1, of which the first characters of a conversation have one.
constexpr int64_t image_token = '1', rows_of_image = 2;

/// Gives each request a token for each byte of its prompt, and each pass outputs of the right shapes.
class InstantEngine final : public engine::Engine {
 public:
  void submit(engine::Request request, std::function<void(const engine::Event&)> on_event) override {
    fuzz::hold(!request.id.empty() && !request.prompt.empty() && request.max_new_tokens > 0,
               "a request without id, prompt or room");
    for (int32_t id : request.prompt)
      if (id >= vocabulary_size) throw Error(Reason::InvalidRequest, "an id outside of the vocabulary");
    for (int64_t s = 0; s < request.search.num_return_sequences; ++s) {
      const int64_t count = std::min<int64_t>(request.max_new_tokens, 5);
      for (int64_t i = 0; i < count; ++i) {
        engine::Event event;
        event.sequence = s;
        event.tokens = {{.id = static_cast<int32_t>(request.prompt[static_cast<size_t>(i) % request.prompt.size()])}};
        for (int64_t k = 0; k < std::min<int64_t>(request.logprobs, 3); ++k)
          event.tokens[0].top_logprobs.emplace_back(static_cast<int32_t>(k), -1.F);
        if (s == 0 && i == 0) event.queued_seconds = 0;
        if (i + 1 == count) event.finish = engine::Finish::Length;
        on_event(event);
      }
    }
  }
  void forward(engine::ForwardRequest request, std::function<void(engine::ForwardResult)> on_done) override {
    engine::ForwardResult result;
    if (const auto audio = request.inputs.find("input_values"); audio != request.inputs.end()) {
      result.outputs = hear(audio->second, request.outputs.at(0));
      return on_done(std::move(result));
    }
    if (const auto pixels = request.inputs.find("pixel_values"); pixels != request.inputs.end()) {
      result.outputs = request.outputs == std::vector<std::string>{policy::image_rows_output}
                           ? image_rows(pixels->second)
                           : see(pixels->second);
      return on_done(std::move(result));
    }
    const auto ids = request.inputs.find("input_ids");
    const std::vector<int64_t> shape = ids == request.inputs.end() ? std::vector<int64_t>{1, 1} : ids->second.shape;
    if (shape.size() < 2 || shape.size() > 3)
      throw Error(Reason::InvalidRequest, "input_ids has another number of dimensions");
    if (request.outputs.empty()) request.outputs = {"logits"};
    for (const auto& name : request.outputs) {
      if (name != "logits" && name != "last_hidden_state" && name != "pooler_output" && name != "prediction_logits" &&
          name != "start_logits" && name != "end_logits")
        continue;
      std::vector<int64_t> wanted{shape[0], shape.size() == 3 ? shape[1] : label_names};
      if (name == "last_hidden_state" || (name == "logits" && per_token)) wanted = {shape[0], shape[1], label_names};
      if (name == "prediction_logits") wanted = {shape[0], shape[1], vocabulary_size};
      if (name == "start_logits" || name == "end_logits") wanted = {shape[0], shape[1]};
      if (name == "logits" && one_label) wanted = {shape[0], 1};
      int64_t size = 1;
      for (int64_t n : wanted) size *= n;
      if (size > 1 << 22) throw Error(Reason::InvalidRequest, "too much for a fuzzer");
      std::vector<float> values(static_cast<size_t>(size));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
      result.outputs[name] = {wanted, std::move(values)};
    }
    on_done(std::move(result));
  }
  void cancel(const std::string&) override {}
  engine::Statistics statistics() const override { return {}; }
  void fail(const std::string&) override {}
  int64_t steps() const override { return 0; }

  bool per_token = false, one_label = false;

 private:
  static Arrays image_rows(const Array& pixels) {
    const bool patches = pixels.shape.size() == 2;
    fuzz::hold(patches || pixels.shape.size() == 4, "pixels that are no images");
    const int64_t rows = pixels.shape[0] * (patches ? 1 : rows_of_image);
    return {{policy::image_rows_output, {{rows, 3}, std::vector<float>(static_cast<size_t>(rows * 3), 1)}}};
  }
  /// Two objects of three classes, the last of which is none, with boxes and masks.
  static Arrays see(const Array& pixels) {
    fuzz::hold(pixels.shape.size() == 4 && pixels.shape[0] == 1, "images that are not alone");
    if (pixels.shape[2] * pixels.shape[3] > 1 << 16) throw Error(Reason::InvalidRequest, "too much for a fuzzer");
    return {{"logits", {{1, 2, 3}, std::vector<float>{3, 1, 0, 0, 4, 1}}},
            {"pred_boxes", {{1, 2, 4}, std::vector<float>{0.5, 0.5, 0.2F, 0.3F, 0.1F, 0.2F, 1, 1}}},
            {"pred_masks", {{1, 2, 2, 3}, std::vector<float>{1, 2, -3, 4, 5, -6, -1, -2, 3, -4, -5, 6}}}};
  }
  static Arrays hear(const Array& audio, const std::string& output) {
    const int64_t frames = audio.shape.size() == 2 ? audio.shape[0] * audio.shape[1] / audio_stride : 0;
    if (frames == 0) throw Error(Reason::InvalidRequest, "too few samples");
    if (output == "embeddings") return {{output, {{1, 2}, std::vector<float>{3, 4}}}};
    if (frames > 1 << 20) throw Error(Reason::InvalidRequest, "too much for a fuzzer");
    std::vector<float> values(static_cast<size_t>(frames * label_names));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 7);
    return {{output, {{1, frames, label_names}, std::move(values)}}};
  }
};

/// Three letters, one of which is the blank and one a space.
std::optional<CtcDecoder> letters() {
  const auto folder = std::filesystem::temp_directory_path() / ("fuzz-ctc-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "vocab.json") << R"({"<pad>": 0, "A": 1, "|": 2})";
  auto decoder = CtcDecoder::find(folder);
  std::filesystem::remove_all(folder);
  return decoder;
}

/// A model that hears. One that gives a label for each frame serves no classification.
Capabilities hearing(size_t kind) {
  static constexpr policy::Task tasks[] = {policy::Task::Transcribe, policy::Task::Transcribe, policy::Task::Embed,
                                           policy::Task::Forward};
  Capabilities can;
  can.task = tasks[kind % std::size(tasks)];
  can.kind = policy::ModelKind::Encoder;
  can.architecture = "Tiny";
  can.takes_text = false;
  can.audio = "input_values";
  can.audio_stride = audio_stride;
  can.scores = can.hidden_states = can.attentions = 4;
  can.extractor = audio::FeatureExtractor{.rate = audio_rate};
  if (can.task == policy::Task::Embed) can.audio_embedding = {"last_hidden_state", {Pooling::Mean}};
  if (can.task == policy::Task::Forward) can.audio_embedding = {"embeddings"};
  static const auto decoder = letters();
  can.ctc = decoder;
  return can;
}

/// A model that finds objects in images, with masks or without.
Capabilities seeing(size_t kind) {
  Capabilities can;
  can.task = policy::Task::DetectObjects;
  can.kind = policy::ModelKind::EncoderDecoder;
  can.architecture = "Tiny";
  can.takes_text = false;
  can.takes_images = true;
  can.image_tokens = 2;
  can.cell_pixels = 32;
  can.labels = {"cat", "dog"};
  if (kind % 2 == 0) can.masks = "pred_masks";
  can.images = image::Processor{.do_resize = false};
  return can;
}

Capabilities model_of(size_t kind, bool any_size) {
  using policy::Task;
  static constexpr Task tasks[] = {Task::Generate,          Task::Classify, Task::ClassifyTokens, Task::MultipleChoice,
                                   Task::QuestionAnswering, Task::FillMask, Task::Embed,          Task::NextSentence};
  Capabilities can;
  can.task = tasks[kind % std::size(tasks)];
  can.architecture = "Tiny";
  can.positions = window_size;
  can.labels.assign(kind >= std::size(tasks) ? 1 : label_names, "B-X");
  can.scores = can.hidden_states = can.attentions = 4;
  can.vocabulary_scores = "prediction_logits";
  can.states = "last_hidden_state";
  can.pooler = "pooler_output";
  can.text = {"last_hidden_state", {Pooling::Mean}};
  if (can.task == policy::Task::Generate && kind >= std::size(tasks)) {  // it reads images among a prompt's tokens
    can.prompt_images = {.stack = "vision", .token = image_token, .rows = rows_of_image};
    can.prompt_images->spelling.placeholder = image_token;
    can.images = image::Processor{.do_resize = false};
    if (any_size) {  // every pixel is a patch, and a token
      can.prompt_images->rows = 0;
      can.images->patches = {.patch = 1, .merge = 1, .frames = 1};
    }
  }
  if (can.task == policy::Task::NextSentence) can.next_sentence = "logits";
  can.prompts = {{{"query", "find "}}, ""};
  if (can.task == Task::FillMask) can.sparse = {can.vocabulary_scores, SpladePooling{}, {}, {}};
  if (can.task == Task::Embed) can.sparse = {can.states, {}, TokenWeights{std::vector<float>(label_names, 1), 1}, {}};
  if (can.task == policy::Task::Embed) {
    can.entities = "entity_ids";
    can.mentions = "entity_position_ids";
  }
  return can;
}

struct Route {
  const char* path;
  http::Response (*handler)(const ServerContext&, const RoutedRequest&);
};

const Route route_table[] = {{"/v1/completions", create_completion},
                             {"/v1/chat/completions", create_chat_completion},
                             {"/generate", generate},
                             {"/v1/embeddings", create_embeddings},
                             {"/classify", classify},
                             {"/fill-mask", fill_mask},
                             {"/question-answering", question_answering},
                             {"/similarity", similarity},
                             {"/rerank", rerank},
                             {"/forward", forward_tensors},
                             {"/tokenize", tokenize},
                             {"/detokenize", detokenize},
                             {"/generate_text/*", generate_text},
                             {"/v1/audio/transcriptions", transcribe},
                             {"/v1/audio/classifications", classify_audio},
                             {"/embed", embed_audio},
                             {"/detect", detect},
                             {"/segment", segment},
                             {"/v1/messages", create_message},
                             {"/v1/messages/count_tokens", count_message_tokens},
                             {"/v1/responses", create_response},
                             {"/v1/responses/input_tokens", count_response_tokens},
                             {"/score", score},
                             {"/embed_sparse", embed_sparse},
                             {"/v1/responses/*/input_items", list_input_items}};

/// The id of every response that is stored, since random() is always 1.
const char* const stored_response = "resp_00000000000000010000000000000001";

class Collected final : public http::Stream {
 public:
  bool write(std::string_view data) override { return text.append(data), true; }
  bool client_gone() override { return false; }
  std::string text;
};

}  // namespace

/// Of http.cpp, which is left out with its sockets.
std::string pm::server::http::Request::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

/// libsndfile 1.2 does not free libvorbis' 5.8 KB of an OGG file whose headers are damaged; any other leak is a
/// finding.
extern "C" const char* __lsan_default_suppressions() { return "leak:vorbis_info_init\n"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const auto tokenizer = Tokenizer::find({});
  static const EntityTokenizer entity_tokenizer({}, *tokenizer);
  static const auto chat_template = ChatTemplate::find({});
  static const auto replies = ReplyForm::find({}, "", nullptr);
  static RequestMetrics metrics;
  InstantEngine engine;
  const bool hears = (data[0] & 32U) != 0;
  const bool sees = (data[0] & 64U) != 0;
  const size_t kind = data[0] & 15U;
  const Capabilities can = hears ? hearing(kind) : sees ? seeing(kind) : model_of(kind, size % 8 >= 4);
  engine.per_token = can.task == policy::Task::ClassifyTokens;
  engine.one_label = can.labels.size() == 1 && can.task == policy::Task::Classify;
  const Route& route = route_table[(data[1] & 31U) % std::size(route_table)];
  const GenerationDefaults defaults;
  std::atomic<bool> stopping{false};
  ServerContext context{engine,
                        (data[0] & 16U) != 0 ? nullptr : &*tokenizer,
                        (data[0] & 16U) != 0 ? nullptr : &*tokenizer,
                        metrics,
                        {"tiny"},
                        window_size,
                        {},
                        defaults,
                        [] { return uint64_t{1}; },
                        [] { return int64_t{1}; },
                        stopping,
                        [] { return std::shared_ptr<void>(); },
                        can,
                        [] { return std::shared_ptr<void>(); },
                        chat_template};
  if ((data[0] & 16U) == 0) context.entity_tokenizer = &entity_tokenizer;
  if ((data[1] & 32U) != 0) context.replies = &*replies;
  static ResponseStore responses(4, 1 << 16);
  context.responses = &responses;
  context.strict_requests = size % 2 == 1;
  static ImageRowCache image_rows(1 << 12);
  context.image_rows = &image_rows;
  context.content_form.images = can.prompt_images.has_value();
  context.content_form.parts = size % 4 < 2;
  http::Request request;
  request.id = "req-1";
  request.method = "POST";
  request.path = route.path;
  request.body = fuzz::text(data + 2, size - 2);
  if ((data[1] & 32U) != 0)
    request.headers["content-type"] = hears ? "multipart/form-data; boundary=b" : "application/octet-stream";
  if ((data[1] & 64U) != 0) request.headers["content-type"] = hears ? "audio/wav" : "image/png";
  if ((data[1] & 128U) != 0) request.query = request.body.substr(0, 60);
  request.client_gone = [] { return false; };
  auto access = std::make_shared<AccessLogEntry>();
  access->route = route.path;
  try {
    const bool of_stored = (data[1] & 64U) != 0 && request.path.find("/*/") != std::string::npos;
    const std::string suffix = of_stored ? stored_response : request.body;
    const http::Response response = route.handler(context, {request, suffix, access});
    fuzz::hold(response.status < 500, "status " + std::to_string(response.status));
    Collected collected;
    if (response.stream)
      response.stream(collected);
    else
      fuzz::hold(response.content_type != "application/json" || json::accept(response.body),
                 std::string(route.path) + " answers what is no JSON: " + response.body.substr(0, 200));
  } catch (const std::exception& exception) {
    const ApiError error = as_api_error(exception);
    fuzz::hold(error.status < 500, std::string(route.path) + " fails: " + exception.what());
    fuzz::hold(json::accept(error_body(error, "req-1")), "an error that is no JSON");
  }
  return 0;
}
