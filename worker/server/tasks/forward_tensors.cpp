// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/forward_tensors.h"

#include <algorithm>

#include "worker/server/http/api_error.h"
#include "worker/server/http/percent_encoding.h"
#include "worker/server/http/tensor_codec.h"
#include "worker/server/tasks/entity_inputs.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr int64_t max_tokens = 16384;                  ///< tokens of all rows, padding included
constexpr int64_t max_json_values = int64_t{4} << 20;  ///< larger outputs are sent as safetensors only

const char* const binary_content = "application/octet-stream";

bool parse_flag(const std::string& name, const std::string& value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  throw bad_field(name, "\"" + value.substr(0, 60) + "\"", "true or false");
}

/// Reads the options in the query: ?hidden_states=true&attentions=true&outputs=logits,pooler_output
void read_query(const RoutedRequest& call, ForwardBatch& batch) {
  for (const auto& [name, value] : parse_query(call.request.query)) {
    if (name == "hidden_states")
      batch.hidden_states = parse_flag(name, value);
    else if (name == "attentions")
      batch.attentions = parse_flag(name, value);
    else if (name == "outputs") {
      for (size_t at = 0; at <= value.size();) {
        const size_t end = std::min(value.find(',', at), value.size());
        if (end > at) batch.outputs.push_back(value.substr(at, end - at));
        at = end + 1;
      }
    } else
      throw ApiError(
          400, "unknown_field",
          name.substr(0, 60) + " is not a parameter of this path; allowed: hidden_states, attentions, outputs",
          name.substr(0, 60));
  }
}

/// Returns whether a tensor has fractional values. Nested lists do not say it.
bool has_fractions(const std::string& name, const Capabilities& can) {
  return name == "pixel_values" || name == can.features || name == can.audio || name == can.targets ||
         name == can.hidden || (!can.memory.empty() && name.starts_with(can.memory)) ||
         std::find(can.vectors.begin(), can.vectors.end(), name) != can.vectors.end();
}

Arrays parse_tensors(Fields& fields, const ServerContext& context) {
  const std::string allowed = "an object of tensors as nested lists: {\"input_ids\": [[1, 2, 3]]}";
  const json& given = require_field(fields, "inputs", allowed);
  if (!given.is_object() || given.empty()) throw bad_field("inputs", json_excerpt(given), allowed);
  Arrays inputs;
  for (const auto& [name, value] : given.items())
    inputs[name] = parse_json_tensor(value, "inputs." + name.substr(0, 60), has_fractions(name, context.capabilities));
  return inputs;
}

ForwardBatch parse_json_batch(const ServerContext& context, const RoutedRequest& call) {
  const json object = parse_route_body(context, call);
  Fields fields(object);
  ForwardBatch batch;
  const bool truncate = read_common_fields(fields, context, &batch.adapter);
  const json* text = reads_entities_of_texts(context) ? fields.find("text") : nullptr;
  if (text && fields.find("inputs"))
    throw ApiError(400, "invalid_value", "inputs stand beside text; send inputs, or text with entity_spans", "text");
  if (text)
    batch.inputs = parse_entity_inputs(fields, context, parse_text(*text, "text"), truncate);
  else
    batch.inputs = parse_tensors(fields, context);
  batch.hidden_states = fields.boolean("hidden_states").value_or(false);
  batch.attentions = fields.boolean("attentions").value_or(false);
  if (const json* outputs = fields.find("outputs")) {
    bool single = false;
    batch.outputs = parse_texts(*outputs, "outputs", single);
  }
  fields.refuse_others();
  read_query(call, batch);
  return batch;
}

/// Parses a body that is a safetensors file.
ForwardBatch parse_file_batch(const ServerContext& context, const RoutedRequest& call) {
  refuse_unless_served(context, call);
  ForwardBatch batch;
  batch.inputs = from_safetensors(call.request.body);
  read_query(call, batch);
  return batch;
}

/// Throws ApiError 413 when the inputs or the outputs exceed the limits of one request.
void check_size(const ServerContext& context, const ForwardBatch& batch) {
  const Capabilities& can = context.capabilities;
  int64_t tokens = 0, width = 0, feature_rows = 0;
  for (const auto& [name, array] : batch.inputs) {
    int64_t elements = 1;
    for (int64_t size : array.shape)
      elements = size > engine::max_forward_values || elements > engine::max_forward_values ? engine::max_forward_values
                                                                                            : elements * size;
    if (name == "pixel_values" && batch.inputs.contains("image_grid_thw")) {  // patches of images of any size
      const int64_t patches = array.shape.empty() ? 0 : array.shape[0];
      tokens += std::min(patches, engine::max_forward_values);
      width = std::max(width, patches);
    } else if (name == "pixel_values" || name == can.pixels) {
      const int64_t images = array.shape.empty() ? 0 : array.shape[0];
      int64_t cells = can.image_tokens;
      if (can.cell_pixels > 0 && array.shape.size() == 4)
        cells += ((array.shape[2] - 1) / can.cell_pixels + 1) * ((array.shape[3] - 1) / can.cell_pixels + 1);
      cells = std::clamp<int64_t>(cells, 1, engine::max_forward_values);
      tokens += std::min(images, engine::max_forward_values / cells) * cells;
      width = std::max(width, cells);
      if (images > static_cast<int64_t>(max_images))
        throw ApiError(413, "too_many_inputs",
                       name + " has " + std::to_string(images) + " images; at most " + std::to_string(max_images) +
                           " in one request",
                       name);
    } else if (name == "input_ids" || name == "decoder_input_ids") {
      const int64_t length = array.shape.empty() ? 0 : array.shape.back();
      if (length > max_input_tokens(context))
        throw ApiError(413, "context_length_exceeded",
                       name + " has rows of " + std::to_string(length) + " tokens, this model takes at most " +
                           std::to_string(max_input_tokens(context)),
                       name);
      const int64_t rows = std::max(length, can.least_rows);
      tokens += length > 0 ? elements / length * rows : 0;
      width = std::max(width, rows);
    } else if (name == can.audio && array.shape.size() >= 2) {
      const bool has_bins = array.shape.size() > 2, bins_first = has_bins && can.audio_bins_first;
      const int64_t bins = has_bins ? std::max<int64_t>(1, array.shape[bins_first ? 1 : 2]) : 1;
      tokens += elements / bins / can.audio_stride + 1;
      width = std::max(width, array.shape[bins_first ? 2 : 1] / can.audio_stride + 1);
    } else if (name == can.entities && !array.shape.empty()) {
      tokens += elements;
      feature_rows = array.shape.back();
    } else if ((name == can.features || name == can.targets || (!can.vectors.empty() && name == can.vectors[0])) &&
               array.shape.size() >= 3) {
      const int64_t vectors = elements / std::max<int64_t>(1, array.shape.back());
      tokens += vectors;
      feature_rows = array.shape[array.shape.size() - 2];
    }
  }
  width += feature_rows + can.memory_tokens;
  if (tokens > max_tokens)
    throw ApiError(413, "too_many_inputs",
                   "the inputs have " + std::to_string(tokens) + " tokens; at most " + std::to_string(max_tokens) +
                       " in one request");
  const int64_t values = tokens * (can.scores + (batch.hidden_states ? can.hidden_states : 0) +
                                   (batch.attentions ? can.attentions * width : 0));
  if (values > engine::max_forward_values)
    throw ApiError(413, "too_large",
                   "the outputs would have " + std::to_string(values) + " values; at most " +
                       std::to_string(engine::max_forward_values) + ": send fewer tokens or request fewer outputs");
}

json dimensions_schema() { return schema::list(schema::integer(0, INT64_MAX)); }

}  // namespace

Operation describe_forward(const ServerContext& context) {
  json tensors = {{"type", "object"},
                  {"minProperties", 1},
                  {"additionalProperties", {{"type", "array"}}},
                  {"description",
                   "Nested lists of numbers under Hugging Face's names: input_ids, attention_mask, token_type_ids, "
                   "position_ids, pixel_values, visual_embeds, decoder_input_ids, ..."}};
  json outputs = {
      {"type", "object"},
      {"additionalProperties",
       schema::object({{"dtype", schema::one_of({"float32", "int64"}), true},
                       {"shape", dimensions_schema(), true},
                       {"data", {{"description", "Nested lists; null for values that are not finite"}}, true}})}};
  const json states = schema::boolean("Return the hidden states of every layer"),
             scores = schema::boolean("Return the attention weights of every layer");
  const json names = texts_schema("Names of the outputs to return; default: those of the Hugging Face class");
  const json example = context.capabilities.takes_text && context.capabilities.audio.empty()
                           ? json{{"inputs", {{"input_ids", {{1, 2, 3}}}}}}
                           : json();
  const bool entities = reads_entities_of_texts(context);
  schema::Properties fields{
      {"inputs", tensors, !entities}, {"hidden_states", states}, {"attentions", scores}, {"outputs", names}};
  std::vector<std::vector<std::string>> required;
  if (entities) {
    for (auto& property : entity_properties()) fields.push_back(std::move(property));
    required = {{"inputs"}, {"text", "entity_spans"}};
  }
  Operation made = task_operation(context, "One forward pass over named tensors, as JSON or as safetensors", fields,
                                  schema::object({{"outputs", outputs, true}}), example, required);
  made.bodies[binary_content] =
      made.replies[binary_content] = {{"type", "string"}, {"format", "binary"}, {"description", "A safetensors file"}};
  const std::vector<std::string> flags{"true", "false", "1", "0"};
  made.query = {{"hidden_states", schema::one_of(flags, "As in a JSON body")},
                {"attentions", schema::one_of(flags, "As in a JSON body")},
                {"outputs", schema::text("As in a JSON body: names, separated by commas")}};
  return made;
}

http::Response forward_tensors(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const bool file = call.request.header("content-type").starts_with(binary_content);
  ForwardBatch batch = file ? parse_file_batch(context, call) : parse_json_batch(context, call);
  check_size(context, batch);
  const auto wanted = batch.outputs;
  std::vector<ForwardBatch> batches;
  batches.push_back(std::move(batch));
  const Arrays outputs = run_forward_batches(context, call, std::move(batches)).at(0);
  std::string available;
  for (const auto& [name, array] : outputs) available += (available.empty() ? "" : ", ") + name;
  for (const auto& name : wanted)
    if (!outputs.contains(name))
      throw bad_field("outputs", "\"" + name.substr(0, 60) + "\"",
                      available.empty() ? "names of this model's outputs; leave the field out to see them"
                                        : "an output of these inputs: " + available + ", ...");

  http::Response response;
  if (call.request.header("accept").starts_with(binary_content)) {
    response.content_type = binary_content;
    response.body = to_safetensors(outputs);
    return response;
  }
  int64_t values = 0;
  for (const auto& [name, array] : outputs)
    values += static_cast<int64_t>(std::visit([](const auto& v) { return v.size(); }, array.values));
  if (values > max_json_values)
    throw ApiError(
        413, "too_large",
        "the outputs have " + std::to_string(values) +
            " values, too many for JSON; send \"Accept: application/octet-stream\" to receive a safetensors file",
        "outputs");
  response.body = R"({"outputs":{)";
  for (const auto& [name, array] : outputs) {
    if (response.body.back() != '{') response.body += ',';
    response.body += json(name).dump() + ":";
    append_json(response.body, array);
  }
  response.body += "}}";
  return response;
}

}  // namespace pm::server
