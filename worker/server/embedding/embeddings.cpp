// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/embeddings.h"

#include <cstring>

#include "base/base64.h"
#include "worker/server/embedding/embedder.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/tensor_codec.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

const char* const allowed_inputs =
    "a text, an array of texts, an array of token ids, an array of such arrays, or {\"image\": base64} in place of a "
    "text";

std::vector<int32_t> parse_token_ids(const json& array, const std::string& field) {
  std::vector<int32_t> ids;
  for (const json& value : array) {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX)
      throw bad_field(field + "[" + std::to_string(ids.size()) + "]", json_excerpt(value),
                      "a token id, an integer from 0");
    ids.push_back(value);
  }
  return ids;
}

Embeddable parse_item(const ServerContext& context, const json& value, const std::string& prompt, bool truncate,
                      const std::string& field) {
  if (value.is_object()) {
    Fields fields(value, field);
    const json *text = fields.find("text"), *image = fields.find("image");
    fields.refuse_others();
    if (!text == !image) throw bad_field(field, json_excerpt(value), "{\"text\": ...} or {\"image\": base64}");
    if (image) return decode_image(context, *image, field + ".image");
    if (text->is_object()) throw bad_field(field + ".text", json_excerpt(*text), "a text or token ids");
    return parse_item(context, *text, prompt, truncate, field + ".text");
  }
  if (!context.capabilities.takes_text) refuse_text_input(context, field);
  if (value.is_array() && !value.empty())
    return EmbeddableText{encode_row(context, parse_token_ids(value, field), truncate, field)};
  if (!value.is_string()) throw bad_field(field, json_excerpt(value), allowed_inputs);
  return embeddable_text(context, prompt, parse_text(value, field), truncate, field);
}

std::vector<Embeddable> parse_items(const ServerContext& context, const json& value, const std::string& prompt,
                                    bool truncate) {
  const bool one = !value.is_array() || (!value.empty() && value.front().is_number());
  if (one) return {parse_item(context, value, prompt, truncate, "input")};
  if (value.empty()) throw bad_field("input", json_excerpt(value), allowed_inputs);
  if (value.size() > max_inputs)
    throw ApiError(413, "too_many_inputs",
                   "input has " + std::to_string(value.size()) + " items; at most " + std::to_string(max_inputs) +
                       " in one request",
                   "input");
  std::vector<Embeddable> items;
  size_t images = 0;
  for (const json& item : value) {
    const std::string field = "input[" + std::to_string(items.size()) + "]";
    if (item.is_object() && item.contains("image") && ++images > max_images)
      throw ApiError(413, "too_many_inputs",
                     "input has more than " + std::to_string(max_images) + " images, the maximum in one request",
                     "input");
    items.push_back(parse_item(context, item, prompt, truncate, field));
  }
  return items;
}

/// Keeps the first `dimensions` values (Matryoshka embeddings) and scales them to length 1 again if `normal`.
void truncate_dimensions(std::vector<float>& vector, int64_t dimensions, bool normal) {
  if (dimensions > static_cast<int64_t>(vector.size()))
    throw bad_field("dimensions", std::to_string(dimensions),
                    "an integer from 1 to " + std::to_string(vector.size()) + ", the width of this model's embeddings");
  vector.resize(static_cast<size_t>(dimensions));
  if (normal) normalize(vector);
}

void append(std::string& body, const std::vector<float>& vector, bool as_base64) {
  if (!as_base64) return append_json(body, vector);
  static_assert(std::endian::native == std::endian::little);  // the format is little-endian float32
  body +=
      '"' + base::encode_base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)}) + '"';
}

constexpr int64_t max_dimensions = 1 << 20;

}  // namespace

Operation describe_embeddings(const ServerContext& context) {
  const Capabilities& can = context.capabilities;
  std::vector<json> kinds;
  if (can.takes_text)
    kinds = {schema::text("", 1), schema::list(schema::integer(0, INT32_MAX), 1, 0, "Token ids"),
             schema::object(
                 {{"text", schema::any({schema::text("", 1), schema::list(schema::integer(0, INT32_MAX), 1)}), true}})};
  if (can.images) kinds.push_back(schema::object({{"image", image_schema(), true}}));
  std::vector<json> ways = kinds;
  ways.push_back(schema::list(schema::any(kinds), 1, max_inputs));
  const json entry = schema::object(
      {{"object", schema::constant("embedding"), true},
       {"index", schema::integer(0, INT64_MAX), true},
       {"embedding",
        schema::any({schema::list(schema::or_null(schema::real())), schema::text("Little-endian float32 in base64")}),
        true}});
  const json count = schema::integer(0, INT64_MAX),
             usage = schema::object({{"prompt_tokens", count, true}, {"total_tokens", count, true}});
  schema::Properties own{
      {"input", schema::any(ways), true},
      {"encoding_format", schema::one_of({"float", "base64"}, "Encoding of the vectors; default float")},
      {"dimensions", schema::integer(1, max_dimensions, "Return this many leading values, normalized again")}};
  for (auto& property : embedding_schema(context)) own.push_back(std::move(property));
  for (auto& property : prompt_schema(context)) own.push_back(std::move(property));
  return task_operation(context, "Embeddings, compatible with OpenAI's API", std::move(own),
                        schema::object({{"object", schema::constant("list"), true},
                                        {"model", schema::text(), true},
                                        {"data", schema::list(entry), true},
                                        {"usage", usage, true}}),
                        can.takes_text ? json{{"input", {"A cat sat.", "Dogs run."}}} : json());
}

http::Response create_embeddings(const ServerContext& context, const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  Fields fields(object);
  std::shared_ptr<const engine::Adapter> adapter;
  const bool truncate = read_common_fields(fields, context, &adapter);
  const json& input = require_field(fields, "input", allowed_inputs);
  const auto format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    throw bad_field("encoding_format", json_excerpt(format), "float or base64");
  const auto dimensions = fields.integer("dimensions", 1, max_dimensions);
  auto options = read_embedding_options(fields, context);
  options.adapter = adapter;
  const auto prompt = read_prompt(fields, context);
  fields.refuse_others();

  const auto items = parse_items(context, input, prompt, truncate);
  auto vectors = embed(context, call, options, items);
  size_t tokens = 0;
  for (const auto& item : items)
    if (const auto* text = std::get_if<EmbeddableText>(&item)) tokens += text->tokens.size();

  http::Response response;
  std::string& body = response.body;
  body = R"({"object":"list","model":)" +
         json(adapter ? adapter->name : context.names.first()).dump(-1, ' ', false, json::error_handler_t::replace) +
         R"(,"data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    const bool text = std::holds_alternative<EmbeddableText>(items[i]);
    if (dimensions)
      truncate_dimensions(vectors[i], *dimensions, text ? options.text.normalize : options.image.normalize);
    body += (i > 0 ? R"(,{"object":"embedding","index":)" : R"({"object":"embedding","index":)") + std::to_string(i) +
            R"(,"embedding":)";
    append(body, vectors[i], format == "base64");
    body += '}';
  }
  body += R"(],"usage":)" + json{{"prompt_tokens", tokens}, {"total_tokens", tokens}}.dump() + "}";
  return response;
}

}  // namespace pm::server
