// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/similarity.h"

#include "worker/server/embedding/embedder.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t max_texts = 256;

/// Returns the field that is present under one of two names, such as "text" and "texts". Throws ApiError 400 unless
/// exactly one is present.
const json& require_either(Fields& fields, std::string_view first_name, std::string_view second_name,
                           std::string_view allowed) {
  const std::string one(first_name), many(second_name);
  const json *first = fields.find(one), *second = fields.find(many);
  if (!first == !second) {
    const std::string found = first ? "both " + one + " and " + many + " are given" : one + " is missing";
    throw ApiError(400, first ? "invalid_value" : "missing_field", found + "; allowed: " + std::string(allowed),
                   first ? many : one);
  }
  return first ? *first : *second;
}

json to_rows(const std::vector<float>& values, size_t width) {
  json rows = json::array();
  for (size_t i = 0; i < values.size(); i += width)
    rows.push_back(std::vector<float>(values.begin() + static_cast<ptrdiff_t>(i),
                                      values.begin() + static_cast<ptrdiff_t>(i + width)));
  return rows;
}

/// Runs one forward pass of both towers of a CLIP model.
http::Response compare_images(const ServerContext& context, const RoutedRequest& call, Fields& fields, bool truncate) {
  const json& text_field = require_either(fields, "text", "texts", "a text or an array of texts");
  const json& image_field = require_either(fields, "image", "images", "an image in base64 or an array of them");
  fields.refuse_others();
  bool single = false;
  std::vector<Row> rows;
  for (const auto& text : parse_texts(text_field, "texts", single, max_texts))
    rows.push_back(encode_row(context, text, truncate, "texts[" + std::to_string(rows.size()) + "]"));
  const json list = image_field.is_array() ? image_field : json::array({image_field});
  if (list.empty() || list.size() > max_images)
    throw ApiError(list.empty() ? 400 : 413, "too_many_inputs",
                   "images has " + std::to_string(list.size()) + " items; allowed: 1 to " + std::to_string(max_images),
                   "images");
  std::vector<Array> images;
  for (const json& image : list)
    images.push_back(decode_image(context, image, "images[" + std::to_string(images.size()) + "]"));

  ForwardBatch batch{pad_rows(context, rows), {"logits_per_image"}};
  batch.inputs["pixel_values"] = stack_images(images, "images");
  std::vector<ForwardBatch> batches;
  batches.push_back(std::move(batch));
  const auto outputs = run_forward_batches(context, call, std::move(batches));
  const auto& logits = float_values(outputs[0], "logits_per_image", 2);
  json probabilities = json::array();
  for (size_t i = 0; i < images.size(); ++i)
    probabilities.push_back(softmax(std::span(logits).subspan(i * rows.size(), rows.size())));
  return json_response({{"logits_per_image", to_rows(logits, rows.size())}, {"probabilities", probabilities}});
}

/// Serves Hugging Face's sentence similarity: {"inputs": {"source_sentence", "sentences"}}, or the same fields without
/// "inputs".
http::Response compare_texts(const ServerContext& context, const RoutedRequest& call, Fields& fields, bool truncate) {
  const std::string allowed = "{\"source\": text, \"sentences\": [text, ...]}";
  json flat = json::object();
  if (const json* inputs = fields.find("inputs")) {
    if (!inputs->is_object()) throw bad_field("inputs", json_excerpt(*inputs), allowed);
    flat = *inputs;
  }
  for (const char* name : {"source", "source_sentence", "sentences"})
    if (const json* value = fields.find(name)) flat[name] = *value;
  const auto options = read_embedding_options(fields, context);
  const auto prompt = read_prompt(fields, context);
  fields.refuse_others();
  Fields inner(flat);
  const json& source = require_either(inner, "source", "source_sentence", allowed);
  const json& sentences = require_field(inner, "sentences", allowed);
  inner.refuse_others();

  bool single = false;
  std::vector<Embeddable> items{embeddable_text(context, prompt, parse_text(source, "source"), truncate, "source")};
  for (const auto& text : parse_texts(sentences, "sentences", single))
    items.push_back(
        embeddable_text(context, prompt, text, truncate, "sentences[" + std::to_string(items.size() - 1) + "]"));
  const auto vectors = embed(context, call, options, items);
  json scores = json::array();
  for (size_t i = 1; i < vectors.size(); ++i)
    scores.push_back(similarity_of(context.capabilities.similarity, vectors[0], vectors[i]));
  return json_response(scores);
}

}  // namespace

Operation describe_similarity(const ServerContext& context) {
  const json text = schema::text("", 1), texts = texts_schema("", max_inputs),
             rows = schema::list(schema::list(schema::or_null(schema::real())));
  schema::Properties own{{"source", text},
                         {"source_sentence", text},
                         {"sentences", texts},
                         {"inputs", schema::object({{"source", text}, {"source_sentence", text}, {"sentences", texts}},
                                                   "Both fields, as Hugging Face's clients nest them")}};
  for (auto& property : embedding_schema(context)) own.push_back(std::move(property));
  for (auto& property : prompt_schema(context)) own.push_back(std::move(property));
  const json cosines = schema::list(schema::or_null(schema::real()), 0, 0, "One cosine per sentence");
  const std::vector<std::vector<std::string>> flat{
      {"source", "sentences"}, {"source_sentence", "sentences"}, {"inputs"}};
  const json example = {{"source", "A cat sat."}, {"sentences", {"A cat was sitting.", "It rains."}}};
  Operation made =
      task_operation(context, "Similarity of texts: the cosine of their embeddings", own, cosines, example, flat);
  if (context.capabilities.task != policy::Task::Similarity) return made;
  const json one_image = image_schema(),
             images = schema::any({image_schema(), schema::list(image_schema(), 1, max_images)});
  const json compared = schema::object({{"logits_per_image", rows, true}, {"probabilities", rows, true}});
  const json both =
      task_operation(context, "",
                     {{"text", texts_schema("", max_texts)},
                      {"texts", texts_schema("", max_texts)},
                      {"image", images},
                      {"images", images}},
                     nullptr, nullptr, {{"text", "image"}, {"texts", "image"}, {"text", "images"}, {"texts", "images"}})
          .body;
  made.summary = "Scores of images and texts of a CLIP model, or similarity of texts";
  made.body = schema::any({both, made.body});
  made.reply = schema::any({compared, made.reply});
  return made;
}

http::Response similarity(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  Fields fields(object);
  const bool truncate = read_common_fields(fields, context);
  const bool images = context.capabilities.task == policy::Task::Similarity && !object.contains("sentences") &&
                      !object.contains("inputs");
  return images ? compare_images(context, call, fields, truncate) : compare_texts(context, call, fields, truncate);
}

}  // namespace pm::server
