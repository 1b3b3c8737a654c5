// POST /similarity. See routes.h.
#include "worker/server/api_error.h"
#include "worker/server/embedder.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t kTexts = 256;

/// "text" or "texts", "image" or "images": one or several, under either name.
const json& either(Fields& fields, const std::string& one, const std::string& many, const std::string& allowed) {
  const json *first = fields.find(one), *second = fields.find(many);
  if (!first == !second) throw ApiError(400, first ? "invalid_value" : "missing_field", (first ? "both " + one + " and " + many + " are given" : one + " is missing") + "; allowed: " + allowed, first ? many : one);
  return first ? *first : *second;
}

json rows_of(const std::vector<float>& values, size_t width) {
  json rows = json::array();
  for (size_t i = 0; i < values.size(); i += width) rows.push_back(std::vector<float>(values.begin() + static_cast<ptrdiff_t>(i), values.begin() + static_cast<ptrdiff_t>(i + width)));
  return rows;
}

/// One pass of both towers.
http::Response compare_images(const Serving& serving, const Call& call, Fields& fields, bool truncate) {
  const json& given_texts = either(fields, "text", "texts", "a text or an array of texts");
  const json& given_images = either(fields, "image", "images", "an image in base64 or an array of them");
  fields.refuse_others();
  bool single = false;
  std::vector<Row> rows;
  for (const auto& text : texts_of(given_texts, "texts", single, kTexts)) rows.push_back(row_of(serving, text, truncate, "texts[" + std::to_string(rows.size()) + "]"));
  const json list = given_images.is_array() ? given_images : json::array({given_images});
  if (list.empty() || list.size() > kImages) throw ApiError(list.empty() ? 400 : 413, "too_many_inputs", "images are " + std::to_string(list.size()) + "; allowed: 1 to " + std::to_string(kImages), "images");
  std::vector<Array> images;
  for (const json& image : list) images.push_back(pixels_of(serving, image, "images[" + std::to_string(images.size()) + "]"));

  PassInputs pass{arrays_of(serving, rows), {"logits_per_image"}};
  pass.inputs["pixel_values"] = stacked(images, "images");
  std::vector<PassInputs> passes;
  passes.push_back(std::move(pass));
  const auto outputs = run_passes(serving, call, std::move(passes));
  const auto& logits = floats_of(outputs[0], "logits_per_image", 2);
  json probabilities = json::array();
  for (size_t i = 0; i < images.size(); ++i) probabilities.push_back(softmax(std::span(logits).subspan(i * rows.size(), rows.size())));
  return json_response({{"logits_per_image", rows_of(logits, rows.size())}, {"probabilities", probabilities}});
}

/// Hugging Face's sentence similarity: {"inputs": {"source_sentence", "sentences"}}, or flat with "source".
http::Response compare_texts(const Serving& serving, const Call& call, Fields& fields, bool truncate) {
  const std::string allowed = "{\"source\": text, \"sentences\": [text, ...]}";
  json flat = json::object();
  if (const json* inputs = fields.find("inputs")) {
    if (!inputs->is_object()) throw bad_field("inputs", shown(*inputs), allowed);
    flat = *inputs;
  }
  for (const char* name : {"source", "source_sentence", "sentences"})
    if (const json* value = fields.find(name)) flat[name] = *value;
  const auto choice = embedding_choice(fields, serving);
  fields.refuse_others();
  Fields inner(flat);
  const json& source = either(inner, "source", "source_sentence", allowed);
  const json& sentences = required(inner, "sentences", allowed);
  inner.refuse_others();

  bool single = false;
  std::vector<Embeddable> items{embedding_row(serving, text_of(source, "source"), truncate, "source")};
  for (const auto& text : texts_of(sentences, "sentences", single)) items.push_back(embedding_row(serving, text, truncate, "sentences[" + std::to_string(items.size() - 1) + "]"));
  const auto vectors = embed(serving, call, choice, items);
  json scores = json::array();
  for (size_t i = 1; i < vectors.size(); ++i) scores.push_back(cosine(vectors[0], vectors[i]));
  return json_response(scores);
}

}  // namespace

Operation describe_similarity(const Serving& serving) {
  const json text = schema::text("", 1), texts = texts_schema("", kInputs), rows = schema::list(schema::list(schema::or_null(schema::real())));
  schema::Properties own{{"source", text}, {"source_sentence", text}, {"sentences", texts},
                         {"inputs", schema::object({{"source", text}, {"source_sentence", text}, {"sentences", texts}}, "Hugging Face's form: both below inputs")}};
  for (auto& property : embedding_schema(serving)) own.push_back(std::move(property));
  const json cosines = schema::list(schema::or_null(schema::real()), 0, 0, "A cosine for each sentence");
  const std::vector<std::vector<std::string>> flat{{"source", "sentences"}, {"source_sentence", "sentences"}, {"inputs"}};
  const json example = {{"source", "A cat sat."}, {"sentences", {"A cat was sitting.", "It rains."}}};
  Operation made = task_operation(serving, "How close texts are: the cosine of their embeddings", own, cosines, example, flat);
  if (serving.abilities.task != "similarity") return made;
  const json one_image = image_schema(), images = schema::any({image_schema(), schema::list(image_schema(), 1, kImages)});
  const json compared = schema::object({{"logits_per_image", rows, true}, {"probabilities", rows, true}});
  const json both = task_operation(serving, "", {{"text", texts_schema("", kTexts)}, {"texts", texts_schema("", kTexts)}, {"image", images}, {"images", images}}, nullptr, nullptr,
                                   {{"text", "image"}, {"texts", "image"}, {"text", "images"}, {"texts", "images"}}).body;
  made.summary = "How well images and texts go together; or how close texts are";
  made.body = schema::any({both, made.body});
  made.reply = schema::any({compared, made.reply});
  return made;
}

http::Response similarity(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  const json object = task_body(serving, call);
  Fields fields(object);
  const bool truncate = common_fields(fields, serving);
  const bool images = serving.abilities.task == "similarity" && !object.contains("sentences") && !object.contains("inputs");
  return images ? compare_images(serving, call, fields, truncate) : compare_texts(serving, call, fields, truncate);
}

}  // namespace pm::server
