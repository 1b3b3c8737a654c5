// SPDX-License-Identifier: Apache-2.0
#include "worker/server/embedding/embedder.h"

#include <algorithm>
#include <map>

#include "base/white_space.h"
#include "worker/server/embedding/pooled_vector.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

constexpr size_t max_batch_images = 8;

/// Returns the vector of row `index` of the outputs. `tokens` is its length, 0 for an image: all of them.
std::vector<float> make_vector(const Arrays& outputs, const Embedding& embedding, size_t index, size_t tokens,
                               size_t prompt_tokens) {
  const auto& values = float_values(outputs, embedding.output, embedding.poolings.empty() ? 2 : 3);
  const auto& shape = outputs.at(embedding.output).shape;
  const auto width = static_cast<size_t>(shape.back());
  std::vector<float> vector;
  if (embedding.poolings.empty()) {
    vector.assign(values.begin() + static_cast<ptrdiff_t>(index * width),
                  values.begin() + static_cast<ptrdiff_t>((index + 1) * width));
  } else {
    const auto length = static_cast<size_t>(shape[1]);
    vector = pool(embedding.poolings, values.data() + index * length * width, tokens == 0 ? length : tokens, width,
                  embedding.skips_prompt ? prompt_tokens : 0);
  }
  for (const auto& module : embedding.modules) vector = apply(*module, std::move(vector));
  if (embedding.normalize) normalize(vector);
  return vector;
}

/// Returns how many tokens a prompt has at the beginning of a text, as sentence-transformers counts them: without the
/// special token that ends a text.
size_t count_prompt_tokens(const ServerContext& context, const std::string& prompt, const std::string& field) {
  if (prompt.empty() || !context.capabilities.text.skips_prompt) return 0;
  const Row row = encode_row(context, prompt, true, field);
  return row.size() - (!row.empty() && row.back().sequence < 0 ? 1 : 0);
}

}  // namespace

schema::Properties embedding_schema(const ServerContext& context) {
  const Capabilities& can = context.capabilities;
  std::vector<std::string> words;
  if (!can.states.empty()) words = {"cls", "last", "max", "mean"};
  if (!can.pooler.empty()) words.push_back("pooler");
  schema::Properties made;
  if (!words.empty())
    made.push_back(
        {"pooling",
         schema::one_of(words,
                        "How the states of the tokens become one vector; default: the checkpoint's own pooling")});
  else
    made.push_back({"pooling", {{"type", "null"}}});
  made.push_back({"normalize", schema::boolean("Scale vectors to length 1")});
  return made;
}

EmbeddingOptions read_embedding_options(Fields& fields, const ServerContext& context) {
  const Capabilities& can = context.capabilities;
  EmbeddingOptions options{can.text, can.image};
  const auto pooling = fields.text("pooling");
  const auto normal = fields.boolean("normalize");
  if (pooling) {
    static const std::map<std::string, Pooling> words{
        {"mean", Pooling::Mean}, {"cls", Pooling::First}, {"last", Pooling::Last}, {"max", Pooling::Max}};
    const auto found = words.find(*pooling);
    std::string allowed = can.states.empty() ? "" : "cls, last, max, mean";
    if (!can.pooler.empty()) allowed += std::string(allowed.empty() ? "" : ", ") + "pooler";
    const bool by_pooler = *pooling == "pooler" && !can.pooler.empty();
    if (!by_pooler && (found == words.end() || can.states.empty()))
      throw bad_field("pooling", json_excerpt(*pooling), allowed);
    auto& own = can.takes_text ? options.text : options.image;
    own = {by_pooler ? can.pooler : can.states, {}, own.normalize, {}, own.skips_prompt};
    if (!by_pooler) own.poolings = {found->second};
  } else if (!can.embedding_refusal.empty()) {
    throw ApiError(400, "not_served",
                   can.embedding_refusal + "; send a \"pooling\" (cls, last, max, mean) to embed without it",
                   "pooling");
  }
  if (normal) options.text.normalize = options.image.normalize = *normal;
  return options;
}

schema::Properties prompt_schema(const ServerContext& context) {
  schema::Properties made{
      {"prompt", schema::text("Prefix of every text, in place of the checkpoint's")},
      {"input_type", schema::one_of({"query", "document", "passage"}, "What the texts are for; chooses a prompt")}};
  std::vector<std::string> names;
  for (const auto& [name, text] : context.capabilities.prompts.by_name) names.push_back(name);
  if (names.empty())
    made.push_back({"prompt_name", {{"type", "null"}}});
  else
    made.push_back({"prompt_name", schema::one_of(names, "A prompt of config_sentence_transformers.json")});
  return made;
}

std::string read_prompt(Fields& fields, const ServerContext& context) {
  const Prompts& prompts = context.capabilities.prompts;
  const auto prompt = fields.text("prompt"), name = fields.text("prompt_name"), use = fields.text("input_type");
  if (prompt.has_value() + name.has_value() + use.has_value() > 1)
    throw ApiError(400, "invalid_value", "prompt, prompt_name and input_type exclude each other; send one of them",
                   prompt ? "prompt" : "prompt_name");
  if (prompt) return *prompt;
  if (use) {
    if (*use != "query" && *use != "document" && *use != "passage")
      throw bad_field("input_type", json_excerpt(*use), "query, document or passage");
    return prompts.of(*use == "query" ? TextUse::Query : TextUse::Document);
  }
  if (!name) return prompts.standard;
  return named_prompt(prompts, *name);
}

const std::string& named_prompt(const Prompts& prompts, const std::string& name) {
  const auto found = prompts.by_name.find(name);
  if (found != prompts.by_name.end()) return found->second;
  std::string names;
  for (const auto& [known, text] : prompts.by_name) names += (names.empty() ? "" : ", ") + known;
  throw bad_field("prompt_name", json_excerpt(name), names.empty() ? "nothing: the checkpoint has no prompts" : names);
}

EmbeddableText embeddable_text(const ServerContext& context, const std::string& prompt, const std::string& text,
                               bool truncate, const std::string& field) {
  std::string_view part = text;
  if (context.capabilities.strip) part = base::trimmed(part);
  return {encode_row(context, prompt + std::string(part), truncate, field),
          count_prompt_tokens(context, prompt, field)};
}

std::vector<std::vector<float>> embed(const ServerContext& context, const RoutedRequest& call,
                                      const EmbeddingOptions& options, const std::vector<Embeddable>& items) {
  std::vector<size_t> text_at, image_at;  // indices of the items of each kind
  std::vector<Row> rows;
  std::vector<size_t> prompt_tokens;
  std::vector<Array> images;
  for (size_t i = 0; i < items.size(); ++i) {
    if (const auto* text = std::get_if<EmbeddableText>(&items[i])) {
      rows.push_back(text->tokens);
      prompt_tokens.push_back(text->prompt_tokens);
      text_at.push_back(i);
    } else {
      images.push_back(std::get<Array>(items[i]));
      image_at.push_back(i);
    }
  }
  if (!rows.empty() && options.text.output.empty()) refuse_text_input(context, "input");

  std::vector<ForwardBatch> batches;
  const auto starts = split_into_batches(rows, context.max_batch_tokens);
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    batches.push_back(
        {pad_rows(context, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {options.text.output}});
  const size_t text_batches = batches.size();
  for (size_t first = 0; first < images.size(); first += max_batch_images) {
    const auto end = std::min(images.size(), first + max_batch_images);
    const std::vector<Array> some(images.begin() + static_cast<ptrdiff_t>(first),
                                  images.begin() + static_cast<ptrdiff_t>(end));
    batches.push_back({{{"pixel_values", stack_images(some, "input")}}, {options.image.output}});
  }
  for (ForwardBatch& batch : batches) batch.adapter = options.adapter;
  const auto outputs = run_forward_batches(context, call, std::move(batches));

  std::vector<std::vector<float>> vectors(items.size());
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    for (size_t r = starts[b]; r < starts[b + 1]; ++r)
      vectors[text_at[r]] = make_vector(outputs[b], options.text, r - starts[b], rows[r].size(), prompt_tokens[r]);
  for (size_t i = 0; i < images.size(); ++i)
    vectors[image_at[i]] =
        make_vector(outputs[text_batches + i / max_batch_images], options.image, i % max_batch_images, 0, 0);
  return vectors;
}

}  // namespace pm::server
