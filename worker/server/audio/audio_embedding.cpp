// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/audio_embedding.h"

#include "worker/server/audio/audio_request.h"
#include "worker/server/tasks/forward_runner.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Returns the mean over the frames of an output [1, frames, width], or an output [1, width] as it is.
std::vector<float> pooled(const Arrays& outputs, const Embedding& how) {
  if (how.poolings.empty()) return float_values(outputs, how.output, 2);
  const std::vector<float>& states = float_values(outputs, how.output, 3);
  const auto width = static_cast<size_t>(outputs.at(how.output).shape[2]), frames = states.size() / width;
  std::vector<double> sums(width);
  for (size_t i = 0; i < states.size(); ++i) sums[i % width] += states[i];
  std::vector<float> mean;
  for (double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(frames)));
  return mean;
}

}  // namespace

Operation describe_audio_embedding(const ServerContext& context) {
  const json entry = schema::object({{"object", schema::constant("embedding"), true},
                                     {"index", schema::integer(0, INT64_MAX), true},
                                     {"embedding", schema::list(schema::or_null(schema::real())), true}});
  return audio_operation(context, "Embedding of audio: an x-vector, or the mean of the frames' states",
                         {{"normalize", schema::boolean("Scale the vector to length 1; default true")}},
                         schema::object({{"object", schema::constant("list"), true},
                                         {"model", schema::text(), true},
                                         {"data", schema::list(entry), true}}));
}

http::Response embed_audio(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const AudioForm form = read_audio_form(context, call, {"normalize"});
  Fields fields(form.options);
  read_common_fields(fields, context);
  const bool unit = fields.boolean("normalize").value_or(true);
  fields.refuse_others();
  const Embedding& how = context.capabilities.audio_embedding;
  std::vector<ForwardBatch> batches;
  batches.push_back({audio_inputs(context, decode_audio(context, form), form.field), {how.output}});
  std::vector<float> vector = pooled(run_forward_batches(context, call, std::move(batches))[0], how);
  if (unit) normalize(vector);
  return json_response({{"object", "list"},
                        {"model", context.names.first()},
                        {"data", {{{"object", "embedding"}, {"index", 0}, {"embedding", vector}}}}});
}

}  // namespace pm::server
