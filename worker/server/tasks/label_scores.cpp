// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/label_scores.h"

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {

using nlohmann::json;

LabelActivation read_activation(Fields& fields, LabelActivation absent) {
  const auto word = fields.text("function_to_apply");
  if (!word) return absent;
  if (*word == "none") return LabelActivation::None;
  if (*word == "sigmoid") return LabelActivation::Sigmoid;
  if (*word == "softmax") return LabelActivation::Softmax;
  throw bad_field("function_to_apply", json_excerpt(*word), "none, sigmoid or softmax");
}

std::vector<double> apply_activation(std::span<const float> logits, LabelActivation activation) {
  if (activation == LabelActivation::Softmax) return softmax(logits);
  std::vector<double> scores(logits.begin(), logits.end());
  if (activation == LabelActivation::Sigmoid)
    for (double& score : scores) score = sigmoid(score);
  return scores;
}

size_t read_top_k(Fields& fields, size_t absent) {
  return static_cast<size_t>(fields.integer("top_k", 1, INT32_MAX).value_or(static_cast<int64_t>(absent)));
}

json label_scores(const std::vector<double>& scores, const std::vector<std::string>& labels, size_t top_k) {
  json all = json::array();
  for (size_t i : top_indices(scores, top_k))
    all.push_back({{"label", i < labels.size() ? labels[i] : "LABEL_" + std::to_string(i)}, {"score", scores[i]}});
  return all;
}

json labels_schema() {
  return schema::list(
      schema::object({{"label", schema::text(), true},
                      {"score", schema::or_null(schema::real("null when the score is not finite")), true}}));
}

schema::Property top_k_schema(const std::string& absent) {
  return {"top_k", schema::integer(1, INT32_MAX, "Maximum number of labels; default " + absent)};
}

schema::Property activation_schema() {
  return {"function_to_apply",
          schema::one_of({"none", "sigmoid", "softmax"},
                         "The default depends on problem_type and the number of labels, as in transformers")};
}

}  // namespace pm::server
