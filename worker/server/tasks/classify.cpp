// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/classify.h"

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/label_scores.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"
#include "worker/server/tasks/token_classification.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t max_choices = 64;
constexpr size_t max_batch_images = 8;
constexpr size_t default_image_labels = 5;  // the default top_k of transformers' image pipeline

/// Follows transformers: problem_type and the number of labels decide.
LabelActivation default_activation(const Capabilities& can) {
  if (can.problem_type == "regression") return LabelActivation::None;
  return can.problem_type == "multi_label_classification" || can.labels.size() == 1 ? LabelActivation::Sigmoid
                                                                                    : LabelActivation::Softmax;
}

/// Accepts a text, [text, pair], or {"text", "text_pair"}.
Row encode_text_or_pair(const ServerContext& context, const json& value, bool truncate, const std::string& field,
                        bool pair_needed) {
  const std::string allowed = pair_needed ? "[first, second] or {\"text\", \"text_pair\"}"
                                          : "a text, [text, text] or {\"text\", \"text_pair\"}";
  if (value.is_string() && !pair_needed) return encode_row(context, parse_text(value, field), truncate, field);
  if (value.is_array() && (value.size() == 2 || (value.size() == 1 && !pair_needed))) {
    const auto first = parse_text(value[0], field + "[0]");
    return value.size() == 1 ? encode_row(context, first, truncate, field)
                             : encode_row(context, first, parse_text(value[1], field + "[1]"), truncate, field);
  }
  if (!value.is_object()) throw bad_field(field, json_excerpt(value), allowed);
  Fields fields(value, field);
  const json *text = fields.find("text"), *pair = fields.find("text_pair");
  fields.refuse_others();
  if (!text || (pair_needed && !pair)) throw bad_field(field, json_excerpt(value), allowed);
  const auto first = parse_text(*text, field + ".text");
  return pair ? encode_row(context, first, parse_text(*pair, field + ".text_pair"), truncate, field)
              : encode_row(context, first, truncate, field);
}

/// The schema of what encode_text_or_pair accepts.
json text_or_pair_schema(bool pair_needed, bool in_list) {
  const json text = schema::text("", 1);
  std::vector<json> ways{schema::object({{"text", text, true}, {"text_pair", text, pair_needed}})};
  if (in_list) ways.push_back(schema::list(text, pair_needed ? 2 : 1, 2));
  if (!pair_needed) ways.push_back(text);
  return schema::any(std::move(ways));
}

http::Response one_or_all(bool single, json all) { return json_response(single ? all[0] : all); }

/// Classifies texts and pairs of texts, and serves next-sentence prediction.
http::Response classify_texts(const ServerContext& context, const RoutedRequest& call, Fields& fields, bool truncate,
                              const std::shared_ptr<const engine::Adapter>& adapter) {
  const Capabilities& can = context.capabilities;
  const bool next_sentence = can.task != policy::Task::Classify;
  const json& inputs = require_field(fields, "inputs", "a text, a pair of texts, or an array of these");
  const size_t top_k = read_top_k(fields, SIZE_MAX);
  const LabelActivation activation =
      next_sentence ? LabelActivation::Softmax : read_activation(fields, default_activation(can));
  fields.refuse_others();
  const bool single = !inputs.is_array();
  const json list = single ? json::array({inputs}) : inputs;
  if (list.empty()) throw bad_field("inputs", json_excerpt(inputs), "at least one text");
  if (list.size() > max_inputs)
    throw ApiError(413, "too_many_inputs",
                   "inputs has " + std::to_string(list.size()) + " items; at most " + std::to_string(max_inputs) +
                       " in one request",
                   "inputs");
  std::vector<Row> rows;
  for (const json& one : list)
    rows.push_back(encode_text_or_pair(
        context, one, truncate, single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]", next_sentence));

  const std::string output = next_sentence ? can.next_sentence : "logits";
  const std::vector<std::string> labels = next_sentence ? std::vector<std::string>{"is_next", "not_next"} : can.labels;
  const auto starts = split_into_batches(rows, context.max_batch_tokens);
  std::vector<ForwardBatch> batches;
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    batches.push_back({pad_rows(context, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {output}});
  for (ForwardBatch& batch : batches) batch.adapter = adapter;
  json all = json::array();
  for (const Arrays& outputs : run_forward_batches(context, call, std::move(batches))) {
    const auto& logits = float_values(outputs, output, 2);
    const auto classes = static_cast<size_t>(outputs.at(output).shape[1]);
    for (size_t i = 0; i < logits.size(); i += classes)
      all.push_back(label_scores(apply_activation(std::span(logits).subspan(i, classes), activation), labels, top_k));
  }
  return one_or_all(single, std::move(all));
}

json classify_pixels(const ServerContext& context, const RoutedRequest& call, const std::vector<Array>& images,
                     LabelActivation activation, size_t top_k) {
  std::vector<ForwardBatch> batches;
  for (size_t first = 0; first < images.size(); first += max_batch_images) {
    const auto end = std::min(images.size(), first + max_batch_images);
    const std::vector<Array> some(images.begin() + static_cast<ptrdiff_t>(first),
                                  images.begin() + static_cast<ptrdiff_t>(end));
    batches.push_back({{{"pixel_values", stack_images(some, "inputs")}}, {"logits"}});
  }
  json all = json::array();
  for (const Arrays& outputs : run_forward_batches(context, call, std::move(batches))) {
    const auto& logits = float_values(outputs, "logits", 2);
    const auto classes = static_cast<size_t>(outputs.at("logits").shape[1]);
    for (size_t i = 0; i < logits.size(); i += classes)
      all.push_back(label_scores(apply_activation(std::span(logits).subspan(i, classes), activation),
                                 context.capabilities.labels, top_k));
  }
  return all;
}

http::Response classify_images(const ServerContext& context, const RoutedRequest& call, Fields& fields) {
  const json& inputs = require_field(fields, "inputs", images_allowed);
  const size_t top_k = read_top_k(fields, default_image_labels);
  const LabelActivation activation = read_activation(fields, default_activation(context.capabilities));
  fields.refuse_others();
  bool single = false;
  const std::vector<Array> images = parse_images(context, inputs, "inputs", single);
  return one_or_all(single, classify_pixels(context, call, images, activation, top_k));
}

/// Classifies an image that is the whole body, as the HTTP API of Hugging Face's pipelines accepts it.
http::Response classify_file(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  if (context.capabilities.task != policy::Task::ClassifyImages)
    throw ApiError(400, "invalid_value",
                   "the body is an image, and " + context.capabilities.architecture + " classifies texts");
  const json none = json::object();
  Fields fields(none);
  return one_or_all(
      true, classify_pixels(context, call, {decode_image_file(context, call.request.body, "the body")},
                            read_activation(fields, default_activation(context.capabilities)), default_image_labels));
}

/// Serves multiple choice: scores each of "choices" as the continuation of "prompt".
http::Response classify_choices(const ServerContext& context, const RoutedRequest& call, Fields& fields,
                                bool truncate) {
  const std::string allowed = "{\"prompt\": text, \"choices\": [text, text, ...]}";
  const std::string prompt = parse_text(require_field(fields, "prompt", allowed), "prompt");
  bool single = false;
  const auto choices = parse_texts(require_field(fields, "choices", allowed), "choices", single, max_choices);
  const size_t top_k = read_top_k(fields, SIZE_MAX);
  fields.find("inputs");  // classify() has merged its fields
  fields.refuse_others();
  std::vector<Row> rows;
  for (const auto& choice : choices)
    rows.push_back(encode_row(context, prompt, choice, truncate, "choices[" + std::to_string(rows.size()) + "]"));
  ForwardBatch batch{pad_rows(context, rows), {"logits"}};
  for (auto& [name, array] : batch.inputs) array.shape.insert(array.shape.begin(), 1);  // [1, choices, length]
  std::vector<ForwardBatch> batches;
  batches.push_back(std::move(batch));
  const auto outputs = run_forward_batches(context, call, std::move(batches));
  const auto scores = softmax(float_values(outputs[0], "logits", 2));
  json all = json::array();
  for (size_t i : top_indices(scores, top_k))
    all.push_back({{"index", i}, {"label", choices.at(i)}, {"score", scores[i]}});
  return json_response(all);
}

Operation describe_texts(const ServerContext& context) {
  const bool next_sentence = context.capabilities.task != policy::Task::Classify;
  const json alone = text_or_pair_schema(next_sentence, false),
             listed = schema::list(text_or_pair_schema(next_sentence, true), 1, max_inputs);
  schema::Properties own{
      {"inputs", schema::any({alone, listed}, "One input gives a list of labels, an array of inputs an array of lists"),
       true},
      top_k_schema("all")};
  if (!next_sentence) own.push_back(activation_schema());
  const json example = next_sentence ? json{{"inputs", {{"text", "She sat."}, {"text_pair", "She stood up."}}}}
                                     : json{{"inputs", "I like it"}};
  return task_operation(context,
                        next_sentence ? "Next-sentence prediction" : "Classification of texts and pairs of texts",
                        std::move(own), one_or_list(labels_schema()), example);
}

Operation describe_images(const ServerContext& context) {
  Operation made = task_operation(context, "Image classification",
                                  {{"inputs", images_schema(), true}, top_k_schema("5"), activation_schema()},
                                  one_or_list(labels_schema()), nullptr);
  for (const char* type : {"image/png", "image/jpeg"}) made.bodies[type] = {{"type", "string"}, {"format", "binary"}};
  return made;
}

Operation describe_choices(const ServerContext& context) {
  const json text = schema::text("", 1), choices = texts_schema("Possible continuations", max_choices);
  const json reply =
      schema::list(schema::object({{"index", schema::integer(0, INT64_MAX, "Index in the request"), true},
                                   {"label", schema::text(), true},
                                   {"score", schema::or_null(schema::real()), true}}));
  return task_operation(
      context, "Multiple choice: scores of possible continuations of a prompt",
      {{"prompt", text},
       {"choices", choices},
       {"inputs",
        schema::object({{"prompt", text}, {"choices", choices}}, "Both fields, as Hugging Face's clients nest them")},
       top_k_schema("all")},
      reply, {{"prompt", "She opened the"}, {"choices", {"door.", "sky."}}}, {{"prompt", "choices"}, {"inputs"}});
}

}  // namespace

Operation describe_classify(const ServerContext& context) {
  const policy::Task task = context.capabilities.task;
  if (task == policy::Task::ClassifyTokens) return describe_token_classification(context);
  if (task == policy::Task::MultipleChoice) return describe_choices(context);
  return task == policy::Task::ClassifyImages ? describe_images(context) : describe_texts(context);
}

http::Response classify(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  if (call.request.header("content-type").starts_with("image/")) return classify_file(context, call);
  json object = parse_route_body(context, call);
  const policy::Task task = context.capabilities.task;
  if (task == policy::Task::ClassifyTokens) return classify_tokens(context, call, object);
  if (task == policy::Task::MultipleChoice && object.contains("inputs") &&
      object["inputs"].is_object()) {  // Hugging Face's clients nest prompt and choices in inputs
    const json inputs = object["inputs"];
    object.erase("inputs");
    for (const auto& [name, value] : inputs.items()) object[name] = value;
  }
  Fields fields(object);
  std::shared_ptr<const engine::Adapter> adapter;
  const bool texts = task != policy::Task::MultipleChoice && task != policy::Task::ClassifyImages;
  const bool truncate = read_common_fields(fields, context, texts ? &adapter : nullptr);
  if (task == policy::Task::MultipleChoice) return classify_choices(context, call, fields, truncate);
  if (task == policy::Task::ClassifyImages) return classify_images(context, call, fields);
  return classify_texts(context, call, fields, truncate, adapter);
}

}  // namespace pm::server
