// POST /forward. See routes.h.
#include <algorithm>

#include "worker/server/api_error.h"
#include "worker/server/percent.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/tensors.h"
#include "worker/server/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 16384;                ///< of all rows, padding included
constexpr int64_t kValues = int64_t{64} << 20;    ///< of all outputs: 256 MiB of floats
constexpr int64_t kJsonValues = int64_t{4} << 20; ///< more is sent as safetensors only

const char* const kBinary = "application/octet-stream";

bool flag(const std::string& name, const std::string& value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  throw bad_field(name, "\"" + value.substr(0, 60) + "\"", "true or false");
}

/// Options in the query: ?hidden_states=true&attentions=true&outputs=logits,pooler_output
void read_query(const Call& call, PassInputs& pass) {
  for (const auto& [name, value] : parse_query(call.request.query)) {
    if (name == "hidden_states") pass.hidden_states = flag(name, value);
    else if (name == "attentions") pass.attentions = flag(name, value);
    else if (name == "outputs") {
      for (size_t at = 0; at <= value.size();) {
        const size_t end = std::min(value.find(',', at), value.size());
        if (end > at) pass.outputs.push_back(value.substr(at, end - at));
        at = end + 1;
      }
    } else throw ApiError(400, "unknown_field", name.substr(0, 60) + " is no parameter of this path; allowed: hidden_states, attentions, outputs", name.substr(0, 60));
  }
}

PassInputs from_json(const Serving& serving, const Call& call) {
  const json object = task_body(serving, call);
  Fields fields(object);
  common_fields(fields, serving);
  const std::string allowed = "an object of tensors as nested lists: {\"input_ids\": [[1, 2, 3]]}";
  const json& inputs = required(fields, "inputs", allowed);
  if (!inputs.is_object() || inputs.empty()) throw bad_field("inputs", shown(inputs), allowed);
  PassInputs pass;
  for (const auto& [name, value] : inputs.items()) pass.inputs[name] = array_of_json(value, "inputs." + name.substr(0, 60), name == "pixel_values" || name == serving.abilities.features);
  pass.hidden_states = fields.boolean("hidden_states").value_or(false);
  pass.attentions = fields.boolean("attentions").value_or(false);
  if (const json* outputs = fields.find("outputs")) {
    bool single = false;
    pass.outputs = texts_of(*outputs, "outputs", single);
  }
  fields.refuse_others();
  read_query(call, pass);
  return pass;
}

/// The body is a safetensors file.
PassInputs from_file(const Serving& serving, const Call& call) {
  refuse_unless_served(serving, call);
  PassInputs pass;
  pass.inputs = from_safetensors(call.request.body);
  read_query(call, pass);
  return pass;
}

/// Refuses what would compute or answer more than one request should.
void check_size(const Serving& serving, const PassInputs& pass) {
  const Abilities& can = serving.abilities;
  int64_t tokens = 0, width = 0, behind = 0;
  for (const auto& [name, array] : pass.inputs) {
    int64_t places = 1;
    for (int64_t size : array.shape) places = size > kValues || places > kValues ? kValues : places * size;
    if (name == "pixel_values") {
      const int64_t images = array.shape.empty() ? 0 : array.shape[0];
      tokens += images * can.image_tokens;
      width = std::max(width, can.image_tokens);
      if (images > static_cast<int64_t>(kImages)) throw ApiError(413, "too_many_inputs", "pixel_values has " + std::to_string(images) + " images; at most " + std::to_string(kImages) + " in one request", name);
    } else if (name == "input_ids" || name == "decoder_input_ids") {
      const int64_t length = array.shape.empty() ? 0 : array.shape.back();
      if (length > longest(serving))
        throw ApiError(413, "context_length_exceeded", name + " has rows of " + std::to_string(length) + " tokens, this model takes at most " + std::to_string(longest(serving)), name);
      tokens += places;
      width = std::max(width, length);
    } else if (name == can.features && array.shape.size() >= 3) {
      const int64_t vectors = places / std::max<int64_t>(1, array.shape.back());
      tokens += vectors;
      behind = array.shape[array.shape.size() - 2];
    }
  }
  width += behind;
  if (tokens > kTokens) throw ApiError(413, "too_many_inputs", "the inputs have " + std::to_string(tokens) + " tokens; at most " + std::to_string(kTokens) + " in one request");
  const int64_t values = tokens * (can.scores + (pass.hidden_states ? can.hidden_states : 0) + (pass.attentions ? can.attentions * width : 0));
  if (values > kValues)
    throw ApiError(413, "too_large", "the outputs would have " + std::to_string(values) + " values; at most " + std::to_string(kValues) + ": send fewer tokens, or ask for less");
}

json dimensions_schema() { return schema::list(schema::integer(0, INT64_MAX)); }

}  // namespace

Operation describe_forward(const Serving& serving) {
  json tensors = {{"type", "object"}, {"minProperties", 1}, {"additionalProperties", {{"type", "array"}}},
                  {"description", "Nested lists of numbers under Hugging Face's names: input_ids, attention_mask, token_type_ids, position_ids, pixel_values, visual_embeds, decoder_input_ids, ..."}};
  json outputs = {{"type", "object"}, {"additionalProperties", schema::object({{"dtype", schema::one_of({"float32", "int64"}), true}, {"shape", dimensions_schema(), true},
                                                                              {"data", {{"description", "Nested lists, null for what is no number"}}, true}})}};
  const json states = schema::boolean("Those of every layer too"), scores = schema::boolean("Those of every layer too");
  const json names = texts_schema("Names of the outputs wanted; default those of the Hugging Face class");
  const json example = serving.abilities.texts ? json{{"inputs", {{"input_ids", {{1, 2, 3}}}}}} : json();
  Operation made = task_operation(serving, "One forward pass over named tensors, as JSON or as safetensors",
                                  {{"inputs", tensors, true}, {"hidden_states", states}, {"attentions", scores}, {"outputs", names}}, schema::object({{"outputs", outputs, true}}), example);
  made.bodies[kBinary] = made.replies[kBinary] = {{"type", "string"}, {"format", "binary"}, {"description", "A safetensors file"}};
  const std::vector<std::string> flags{"true", "false", "1", "0"};
  made.query = {{"hidden_states", schema::one_of(flags, "As in a JSON body")}, {"attentions", schema::one_of(flags, "As in a JSON body")},
                {"outputs", schema::text("As in a JSON body: names, separated by commas")}};
  return made;
}

http::Response forward_tensors(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  const bool file = call.request.header("content-type").starts_with(kBinary);
  PassInputs pass = file ? from_file(serving, call) : from_json(serving, call);
  check_size(serving, pass);
  const auto wanted = pass.outputs;
  std::vector<PassInputs> passes;
  passes.push_back(std::move(pass));
  const Arrays outputs = run_passes(serving, call, std::move(passes)).at(0);
  std::string there;
  for (const auto& [name, array] : outputs) there += (there.empty() ? "" : ", ") + name;
  for (const auto& name : wanted)
    if (!outputs.contains(name)) throw bad_field("outputs", "\"" + name.substr(0, 60) + "\"", there.empty() ? "names of this model's outputs; leave the field out to see them" : "of these inputs' outputs: " + there + ", ...");

  http::Response response;
  if (call.request.header("accept").starts_with(kBinary)) {
    response.content_type = kBinary;
    response.body = to_safetensors(outputs);
    return response;
  }
  int64_t values = 0;
  for (const auto& [name, array] : outputs) values += static_cast<int64_t>(std::visit([](const auto& v) { return v.size(); }, array.values));
  if (values > kJsonValues)
    throw ApiError(413, "too_large", "the outputs have " + std::to_string(values) + " values, too many for JSON; send \"Accept: application/octet-stream\" and get a safetensors file", "outputs");
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
