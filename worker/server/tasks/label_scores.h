// SPDX-License-Identifier: Apache-2.0
// Scores of classes: activation of logits, the best labels, and the request fields that choose both.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "worker/server/http/json_body.h"
#include "worker/server/http/openapi_schema.h"

namespace pm::server {

enum class LabelActivation { None, Sigmoid, Softmax };

/// Reads function_to_apply.
LabelActivation read_activation(Fields&, LabelActivation absent);
std::vector<double> apply_activation(std::span<const float> logits, LabelActivation);

/// Reads top_k.
size_t read_top_k(Fields&, size_t absent);
/// Returns the best `top_k` labels as [{"label", "score"}].
nlohmann::json label_scores(const std::vector<double>& scores, const std::vector<std::string>& labels, size_t top_k);

/// The schemas of what these read and return.
nlohmann::json labels_schema();
schema::Property top_k_schema(const std::string& absent);
schema::Property activation_schema();

}  // namespace pm::server
