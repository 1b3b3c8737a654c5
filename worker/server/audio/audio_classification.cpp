// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/audio_classification.h"

#include "worker/server/audio/audio_request.h"
#include "worker/server/tasks/forward_runner.h"
#include "worker/server/tasks/label_scores.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr size_t default_labels = 5;  // the default top_k of transformers' pipeline

/// Follows transformers' pipeline for audio: problem_type decides.
LabelActivation default_activation(const Capabilities& can) {
  if (can.problem_type == "regression") return LabelActivation::None;
  return can.problem_type == "multi_label_classification" ? LabelActivation::Sigmoid : LabelActivation::Softmax;
}

}  // namespace

Operation describe_audio_classification(const ServerContext& context) {
  return audio_operation(context, "Classification of audio", {top_k_schema("5"), activation_schema()}, labels_schema());
}

http::Response classify_audio(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const AudioForm form = read_audio_form(context, call, {"top_k"});
  Fields fields(form.options);
  read_common_fields(fields, context);
  const size_t top_k = read_top_k(fields, default_labels);
  const LabelActivation activation = read_activation(fields, default_activation(context.capabilities));
  fields.refuse_others();
  std::vector<ForwardBatch> batches;
  batches.push_back({audio_inputs(context, decode_audio(context, form), form.field), {"logits"}});
  const auto outputs = run_forward_batches(context, call, std::move(batches));
  return json_response(label_scores(apply_activation(float_values(outputs[0], "logits", 2), activation),
                                    context.capabilities.labels, top_k));
}

}  // namespace pm::server
