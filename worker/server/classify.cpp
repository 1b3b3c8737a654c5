// POST /classify but for token classification. See routes.h.
#include "worker/server/api_error.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t kChoices = 64;
constexpr size_t kPassImages = 8;
constexpr size_t kImageLabels = 5;   // shown unless top_k says otherwise, as the image pipeline

enum class Apply { None, Sigmoid, Softmax };

/// transformers' rule: what the request says, else by problem_type and the number of labels.
Apply apply_of(Fields& fields, const Abilities& can) {
  if (const auto word = fields.text("function_to_apply")) {
    if (*word == "none") return Apply::None;
    if (*word == "sigmoid") return Apply::Sigmoid;
    if (*word == "softmax") return Apply::Softmax;
    throw bad_field("function_to_apply", shown(*word), "none, sigmoid or softmax");
  }
  if (can.problem_type == "regression") return Apply::None;
  return can.problem_type == "multi_label_classification" || can.labels.size() == 1 ? Apply::Sigmoid : Apply::Softmax;
}

std::vector<double> scores_of(std::span<const float> logits, Apply apply) {
  if (apply == Apply::Softmax) return softmax(logits);
  std::vector<double> scores(logits.begin(), logits.end());
  if (apply == Apply::Sigmoid)
    for (double& score : scores) score = sigmoid(score);
  return scores;
}

json labelled(const std::vector<double>& scores, const std::vector<std::string>& labels, size_t top_k) {
  json all = json::array();
  for (size_t i : largest(scores, top_k)) all.push_back({{"label", i < labels.size() ? labels[i] : "LABEL_" + std::to_string(i)}, {"score", scores[i]}});
  return all;
}

size_t top_k_of(Fields& fields, size_t absent) { return static_cast<size_t>(fields.integer("top_k", 1, INT32_MAX).value_or(static_cast<int64_t>(absent))); }

/// A text, [text, pair], or {"text", "text_pair"}.
Row text_or_pair(const Serving& serving, const json& value, bool truncate, const std::string& field, bool pair_needed) {
  const std::string allowed = pair_needed ? "[first, second] or {\"text\", \"text_pair\"}" : "a text, [text, text] or {\"text\", \"text_pair\"}";
  if (value.is_string() && !pair_needed) return row_of(serving, text_of(value, field), truncate, field);
  if (value.is_array() && (value.size() == 2 || (value.size() == 1 && !pair_needed))) {
    const auto first = text_of(value[0], field + "[0]");
    return value.size() == 1 ? row_of(serving, first, truncate, field) : row_of(serving, first, text_of(value[1], field + "[1]"), truncate, field);
  }
  if (!value.is_object()) throw bad_field(field, shown(value), allowed);
  Fields fields(value, field + ".");
  const json *text = fields.find("text"), *pair = fields.find("text_pair");
  fields.refuse_others();
  if (!text || (pair_needed && !pair)) throw bad_field(field, shown(value), allowed);
  const auto first = text_of(*text, field + ".text");
  return pair ? row_of(serving, first, text_of(*pair, field + ".text_pair"), truncate, field) : row_of(serving, first, truncate, field);
}

json labels_schema() { return schema::list(schema::object({{"label", schema::text(), true}, {"score", schema::or_null(schema::real("null where the model gave no number")), true}})); }

schema::Property top_k_schema(const std::string& absent) { return {"top_k", schema::integer(1, INT32_MAX, "How many labels; default " + absent)}; }

schema::Property apply_schema() {
  return {"function_to_apply", schema::one_of({"none", "sigmoid", "softmax"}, "Default by problem_type and the number of labels, as transformers")};
}

/// What text_or_pair reads.
json text_or_pair_schema(bool pair_needed, bool in_list) {
  const json text = schema::text("", 1);
  std::vector<json> ways{schema::object({{"text", text, true}, {"text_pair", text, pair_needed}})};
  if (in_list) ways.push_back(schema::list(text, pair_needed ? 2 : 1, 2));
  if (!pair_needed) ways.push_back(text);
  return schema::any(std::move(ways));
}

http::Response answer(bool single, json all) { return json_response(single ? all[0] : all); }

/// Classes of texts and pairs, and whether a sentence follows another.
http::Response classify_texts(const Serving& serving, const Call& call, Fields& fields, bool truncate) {
  const Abilities& can = serving.abilities;
  const bool follows = can.task != "classify";
  const json& inputs = required(fields, "inputs", "a text, a pair of texts, or an array of these");
  const size_t top_k = top_k_of(fields, SIZE_MAX);
  const Apply apply = follows ? Apply::Softmax : apply_of(fields, can);
  fields.refuse_others();
  const bool single = !inputs.is_array();
  const json list = single ? json::array({inputs}) : inputs;
  if (list.empty()) throw bad_field("inputs", shown(inputs), "at least one text");
  if (list.size() > kInputs) throw ApiError(413, "too_many_inputs", "inputs are " + std::to_string(list.size()) + "; at most " + std::to_string(kInputs) + " in one request", "inputs");
  std::vector<Row> rows;
  for (const json& one : list) rows.push_back(text_or_pair(serving, one, truncate, single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]", follows));

  const std::string output = follows ? can.next_sentence : "logits";
  const std::vector<std::string> labels = follows ? std::vector<std::string>{"is_next", "not_next"} : can.labels;
  const auto starts = batches(rows, kPassTokens);
  std::vector<PassInputs> passes;
  for (size_t b = 0; b + 1 < starts.size(); ++b) passes.push_back({arrays_of(serving, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {output}});
  json all = json::array();
  for (const Arrays& outputs : run_passes(serving, call, std::move(passes))) {
    const auto& logits = floats_of(outputs, output, 2);
    const auto classes = static_cast<size_t>(outputs.at(output).shape[1]);
    for (size_t i = 0; i < logits.size(); i += classes) all.push_back(labelled(scores_of(std::span(logits).subspan(i, classes), apply), labels, top_k));
  }
  return answer(single, std::move(all));
}

json classify_pixels(const Serving& serving, const Call& call, const std::vector<Array>& images, Apply apply, size_t top_k) {
  std::vector<PassInputs> passes;
  for (size_t first = 0; first < images.size(); first += kPassImages) {
    const auto end = std::min(images.size(), first + kPassImages);
    const std::vector<Array> some(images.begin() + static_cast<ptrdiff_t>(first), images.begin() + static_cast<ptrdiff_t>(end));
    passes.push_back({{{"pixel_values", stacked(some, "inputs")}}, {"logits"}});
  }
  json all = json::array();
  for (const Arrays& outputs : run_passes(serving, call, std::move(passes))) {
    const auto& logits = floats_of(outputs, "logits", 2);
    const auto classes = static_cast<size_t>(outputs.at("logits").shape[1]);
    for (size_t i = 0; i < logits.size(); i += classes) all.push_back(labelled(scores_of(std::span(logits).subspan(i, classes), apply), serving.abilities.labels, top_k));
  }
  return all;
}

http::Response classify_images(const Serving& serving, const Call& call, Fields& fields) {
  const json& inputs = required(fields, "inputs", "an image in base64, {\"image\": base64}, or an array of these");
  const size_t top_k = top_k_of(fields, kImageLabels);
  const Apply apply = apply_of(fields, serving.abilities);
  fields.refuse_others();
  const bool single = !inputs.is_array();
  const json list = single ? json::array({inputs}) : inputs;
  if (list.empty() || list.size() > kImages)
    throw ApiError(list.empty() ? 400 : 413, "too_many_inputs", "inputs are " + std::to_string(list.size()) + " images; allowed: 1 to " + std::to_string(kImages), "inputs");
  std::vector<Array> images;
  for (const json& one : list) {
    const std::string field = single ? "inputs" : "inputs[" + std::to_string(images.size()) + "]";
    const bool object = one.is_object() && one.size() == 1 && one.contains("image");
    images.push_back(pixels_of(serving, object ? one["image"] : one, field));
  }
  return answer(single, classify_pixels(serving, call, images, apply, top_k));
}

/// The body itself is the file, as the pipelines' HTTP API takes it.
http::Response classify_file(const Serving& serving, const Call& call) {
  refuse_unless_served(serving, call);
  if (serving.abilities.task != "classify-images") throw ApiError(400, "invalid_value", "the body is an image, and " + serving.abilities.architecture + " classifies texts");
  const json none = json::object();
  Fields fields(none);
  return answer(true, classify_pixels(serving, call, {pixels_of_file(serving, call.request.body, "the body")}, apply_of(fields, serving.abilities), kImageLabels));
}

/// {"prompt", "choices"}: which choice goes best with the prompt.
http::Response choose(const Serving& serving, const Call& call, Fields& fields, bool truncate) {
  const std::string allowed = "{\"prompt\": text, \"choices\": [text, text, ...]}";
  const std::string prompt = text_of(required(fields, "prompt", allowed), "prompt");
  bool single = false;
  const auto choices = texts_of(required(fields, "choices", allowed), "choices", single, kChoices);
  const size_t top_k = top_k_of(fields, SIZE_MAX);
  fields.find("inputs");   // laid over the rest
  fields.refuse_others();
  std::vector<Row> rows;
  for (const auto& choice : choices) rows.push_back(row_of(serving, prompt, choice, truncate, "choices[" + std::to_string(rows.size()) + "]"));
  PassInputs pass{arrays_of(serving, rows), {"logits"}};
  for (auto& [name, array] : pass.inputs) array.shape.insert(array.shape.begin(), 1);   // [1, choices, length]
  std::vector<PassInputs> passes;
  passes.push_back(std::move(pass));
  const auto outputs = run_passes(serving, call, std::move(passes));
  const auto scores = softmax(floats_of(outputs[0], "logits", 2));
  json all = json::array();
  for (size_t i : largest(scores, top_k)) all.push_back({{"index", i}, {"label", choices.at(i)}, {"score", scores[i]}});
  return json_response(all);
}

Operation describe_texts(const Serving& serving) {
  const bool follows = serving.abilities.task != "classify";
  const json alone = text_or_pair_schema(follows, false), listed = schema::list(text_or_pair_schema(follows, true), 1, kInputs);
  schema::Properties own{{"inputs", schema::any({alone, listed}, "One input gives a list of labels, an array of inputs an array of lists"), true}, top_k_schema("all")};
  if (!follows) own.push_back(apply_schema());
  const json example = follows ? json{{"inputs", {{"text", "She sat."}, {"text_pair", "She stood up."}}}} : json{{"inputs", "I like it"}};
  return task_operation(serving, follows ? "Whether a sentence follows another" : "Classes of texts and pairs of texts", std::move(own), one_or_list(labels_schema()), example);
}

Operation describe_images(const Serving& serving) {
  const json image = schema::any({image_schema(), schema::object({{"image", image_schema(), true}})});
  Operation made = task_operation(serving, "Classes of images", {{"inputs", schema::any({image, schema::list(image, 1, kImages)}), true}, top_k_schema("5"), apply_schema()},
                                  one_or_list(labels_schema()), nullptr);
  for (const char* type : {"image/png", "image/jpeg"}) made.bodies[type] = {{"type", "string"}, {"format", "binary"}};
  return made;
}

Operation describe_choices(const Serving& serving) {
  const json text = schema::text("", 1), choices = texts_schema("What may follow", kChoices);
  const json reply = schema::list(schema::object({{"index", schema::integer(0, INT64_MAX, "In the request"), true}, {"label", schema::text(), true}, {"score", schema::or_null(schema::real()), true}}));
  return task_operation(serving, "Which choice goes best with a prompt",
                        {{"prompt", text}, {"choices", choices}, {"inputs", schema::object({{"prompt", text}, {"choices", choices}}, "Where Hugging Face's clients put both")}, top_k_schema("all")},
                        reply, {{"prompt", "She opened the"}, {"choices", {"door.", "sky."}}}, {{"prompt", "choices"}, {"inputs"}});
}

}  // namespace

Operation describe_classify(const Serving& serving) {
  const std::string& task = serving.abilities.task;
  if (task == "classify-tokens") return describe_entities(serving);
  if (task == "multiple-choice") return describe_choices(serving);
  return task == "classify-images" ? describe_images(serving) : describe_texts(serving);
}

http::Response classify(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  if (call.request.header("content-type").starts_with("image/")) return classify_file(serving, call);
  json object = task_body(serving, call);
  const std::string& task = serving.abilities.task;
  if (task == "classify-tokens") return classify_tokens(serving, call, object);
  if (task == "multiple-choice" && object.contains("inputs") && object["inputs"].is_object()) {   // Hugging Face's clients put all of it there
    const json inputs = object["inputs"];
    object.erase("inputs");
    for (const auto& [name, value] : inputs.items()) object[name] = value;
  }
  Fields fields(object);
  const bool truncate = common_fields(fields, serving);
  if (task == "multiple-choice") return choose(serving, call, fields, truncate);
  if (task == "classify-images") return classify_images(serving, call, fields);
  return classify_texts(serving, call, fields, truncate);
}

}  // namespace pm::server
