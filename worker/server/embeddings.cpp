// POST /v1/embeddings. See routes.h.
#include <cstring>

#include "worker/server/api_error.h"
#include "worker/server/embedder.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"

namespace pm::server {
namespace {

using nlohmann::json;

const char* const kAllowed = "a text, an array of texts, an array of token ids, an array of such arrays, or {\"image\": base64} in place of a text";

std::vector<int32_t> ids_of(const json& array, const std::string& field) {
  std::vector<int32_t> ids;
  for (const json& value : array) {
    if (!value.is_number_integer() || value < 0 || value > INT32_MAX) throw bad_field(field + "[" + std::to_string(ids.size()) + "]", shown(value), "a token id, an integer from 0");
    ids.push_back(value);
  }
  return ids;
}

Embeddable item_of(const Serving& serving, const json& value, bool truncate, const std::string& field) {
  if (value.is_object()) {
    Fields fields(value, field + ".");
    const json *text = fields.find("text"), *image = fields.find("image");
    fields.refuse_others();
    if (!text == !image) throw bad_field(field, shown(value), "{\"text\": ...} or {\"image\": base64}");
    if (image) return pixels_of(serving, *image, field + ".image");
    if (text->is_object()) throw bad_field(field + ".text", shown(*text), "a text or token ids");
    return item_of(serving, *text, truncate, field + ".text");
  }
  if (!serving.abilities.texts) refuse_texts(serving, field);
  if (value.is_array() && !value.empty()) return row_of(serving, ids_of(value, field), truncate, field);
  if (!value.is_string()) throw bad_field(field, shown(value), kAllowed);
  return embedding_row(serving, text_of(value, field), truncate, field);
}

std::vector<Embeddable> items_of(const Serving& serving, const json& value, bool truncate) {
  const bool one = !value.is_array() || (!value.empty() && value.front().is_number());
  if (one) return {item_of(serving, value, truncate, "input")};
  if (value.empty()) throw bad_field("input", shown(value), kAllowed);
  if (value.size() > kInputs) throw ApiError(413, "too_many_inputs", "input has " + std::to_string(value.size()) + " items; at most " + std::to_string(kInputs) + " in one request", "input");
  std::vector<Embeddable> items;
  size_t images = 0;
  for (const json& item : value) {
    const std::string field = "input[" + std::to_string(items.size()) + "]";
    if (item.is_object() && item.contains("image") && ++images > kImages)
      throw ApiError(413, "too_many_inputs", "input has more than " + std::to_string(kImages) + " images, which is the most in one request", "input");
    items.push_back(item_of(serving, item, truncate, field));
  }
  return items;
}

/// Matryoshka: the first `dimensions` values, to length 1 again where the whole was.
void shorten(std::vector<float>& vector, int64_t dimensions, bool normal) {
  if (dimensions > static_cast<int64_t>(vector.size()))
    throw bad_field("dimensions", std::to_string(dimensions), "an integer from 1 to " + std::to_string(vector.size()) + ", the width of this model's embeddings");
  vector.resize(static_cast<size_t>(dimensions));
  if (normal) normalize(vector);
}

void append(std::string& body, const std::vector<float>& vector, bool as_base64) {
  if (!as_base64) return append_json(body, vector);
  static_assert(std::endian::native == std::endian::little);   // the format is little-endian float32
  body += '"' + base64({reinterpret_cast<const uint8_t*>(vector.data()), vector.size() * sizeof(float)}) + '"';
}

constexpr int64_t kMostDimensions = 1 << 20;

}  // namespace

Operation describe_embeddings(const Serving& serving) {
  const Abilities& can = serving.abilities;
  std::vector<json> kinds;
  if (can.texts) kinds = {schema::text("", 1), schema::list(schema::integer(0, INT32_MAX), 1, 0, "Token ids"), schema::object({{"text", schema::any({schema::text("", 1), schema::list(schema::integer(0, INT32_MAX), 1)}), true}})};
  if (can.images) kinds.push_back(schema::object({{"image", image_schema(), true}}));
  std::vector<json> ways = kinds;
  ways.push_back(schema::list(schema::any(kinds), 1, kInputs));
  const json entry = schema::object({{"object", schema::constant("embedding"), true}, {"index", schema::integer(0, INT64_MAX), true},
                                     {"embedding", schema::any({schema::list(schema::or_null(schema::real())), schema::text("Little-endian float32 in base64")}), true}});
  const json count = schema::integer(0, INT64_MAX), usage = schema::object({{"prompt_tokens", count, true}, {"total_tokens", count, true}});
  schema::Properties own{{"input", schema::any(ways), true},
                         {"encoding_format", schema::one_of({"float", "base64"}, "Default float")},
                         {"dimensions", schema::integer(1, kMostDimensions, "The first so many values, normalised again")}};
  for (auto& property : embedding_schema(serving)) own.push_back(std::move(property));
  return task_operation(serving, "Embeddings, OpenAI's", std::move(own),
                        schema::object({{"object", schema::constant("list"), true}, {"model", schema::text(), true}, {"data", schema::list(entry), true}, {"usage", usage, true}}),
                        can.texts ? json{{"input", {"A cat sat.", "Dogs run."}}} : json());
}

http::Response create_embeddings(const Serving& serving, const Call& call) {
  const auto admitted = serving.admit();
  const json object = task_body(serving, call);
  Fields fields(object);
  const bool truncate = common_fields(fields, serving);
  const json& input = required(fields, "input", kAllowed);
  const auto format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") throw bad_field("encoding_format", shown(format), "float or base64");
  const auto dimensions = fields.integer("dimensions", 1, kMostDimensions);
  const auto choice = embedding_choice(fields, serving);
  fields.refuse_others();

  const auto items = items_of(serving, input, truncate);
  auto vectors = embed(serving, call, choice, items);
  size_t tokens = 0;
  for (const auto& item : items)
    if (const auto* row = std::get_if<Row>(&item)) tokens += row->size();

  http::Response response;
  std::string& body = response.body;
  body = R"({"object":"list","model":)" + json(serving.model).dump(-1, ' ', false, json::error_handler_t::replace) + R"(,"data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    const bool text = std::holds_alternative<Row>(items[i]);
    if (dimensions) shorten(vectors[i], *dimensions, text ? choice.text.normalize : choice.image.normalize);
    body += (i > 0 ? R"(,{"object":"embedding","index":)" : R"({"object":"embedding","index":)") + std::to_string(i) + R"(,"embedding":)";
    append(body, vectors[i], format == "base64");
    body += '}';
  }
  body += R"(],"usage":)" + json{{"prompt_tokens", tokens}, {"total_tokens", tokens}}.dump() + "}";
  return response;
}

}  // namespace pm::server
