// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/embedder.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

constexpr size_t max_batch_images = 8;

/// Pools the states [tokens, width] of one sequence into one vector, as sentence-transformers defines it.
std::vector<float> pool(std::span<const float> states, size_t tokens, size_t width, Pooling pooling) {
  const auto row = [&](size_t t) { return states.subspan(t * width, width); };
  if (pooling == Pooling::First || pooling == Pooling::Last) {
    const auto one = row(pooling == Pooling::First ? 0 : tokens - 1);
    return {one.begin(), one.end()};
  }
  if (pooling == Pooling::Max) {
    std::vector<float> most(row(0).begin(), row(0).end());
    for (size_t t = 1; t < tokens; ++t)
      for (size_t i = 0; i < width; ++i) most[i] = std::max(most[i], row(t)[i]);
    return most;
  }
  std::vector<double> sum(width);
  double weights = 0;
  for (size_t t = 0; t < tokens; ++t) {
    const double weight = pooling == Pooling::WeightedMean ? static_cast<double>(t + 1) : 1;
    weights += weight;
    for (size_t i = 0; i < width; ++i) sum[i] += weight * row(t)[i];
  }
  const double by = pooling == Pooling::MeanSqrt ? std::sqrt(weights) : weights;
  std::vector<float> mean;
  for (double value : sum) mean.push_back(static_cast<float>(value / by));
  return mean;
}

std::vector<float> make_vector(const Arrays& outputs, const Embedding& embedding, size_t index, size_t tokens) {
  const auto& values = float_values(outputs, embedding.output, embedding.pooling == Pooling::None ? 2 : 3);
  const auto& shape = outputs.at(embedding.output).shape;
  const auto width = static_cast<size_t>(shape.back());
  std::vector<float> vector;
  if (embedding.pooling == Pooling::None) {
    vector.assign(values.begin() + static_cast<ptrdiff_t>(index * width),
                  values.begin() + static_cast<ptrdiff_t>((index + 1) * width));
  } else {
    const auto length = static_cast<size_t>(shape[1]);
    vector = pool(std::span(values).subspan(index * length * width, length * width), tokens == 0 ? length : tokens,
                  width, embedding.pooling);
  }
  if (embedding.normalize) normalize(vector);
  return vector;
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
    own.output = by_pooler ? can.pooler : can.states;
    own.pooling = by_pooler ? Pooling::None : found->second;
  } else if (!can.embedding_refusal.empty()) {
    throw ApiError(400, "not_served",
                   can.embedding_refusal + "; send a \"pooling\" (cls, last, max, mean) to embed without it",
                   "pooling");
  }
  if (normal) options.text.normalize = options.image.normalize = *normal;
  return options;
}

Row embedding_row(const ServerContext& context, const std::string& text, bool truncate, const std::string& field) {
  std::string_view part = text;
  constexpr std::string_view white_pixel = " \t\r\n\v\f";
  if (context.capabilities.strip) {
    part.remove_prefix(std::min(part.find_first_not_of(white_pixel), part.size()));
    part = part.substr(0, part.find_last_not_of(white_pixel) + 1);
  }
  return encode_row(context, context.capabilities.prefix + std::string(part), truncate, field);
}

std::vector<std::vector<float>> embed(const ServerContext& context, const RoutedRequest& call,
                                      const EmbeddingOptions& options, const std::vector<Embeddable>& items) {
  std::vector<size_t> text_at, image_at;  // indices of the items of each kind
  std::vector<Row> rows;
  std::vector<Array> images;
  for (size_t i = 0; i < items.size(); ++i) {
    if (const auto* row = std::get_if<Row>(&items[i])) {
      rows.push_back(*row);
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
  const auto outputs = run_forward_batches(context, call, std::move(batches));

  std::vector<std::vector<float>> vectors(items.size());
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    for (size_t r = starts[b]; r < starts[b + 1]; ++r)
      vectors[text_at[r]] = make_vector(outputs[b], options.text, r - starts[b], rows[r].size());
  for (size_t i = 0; i < images.size(); ++i)
    vectors[image_at[i]] =
        make_vector(outputs[text_batches + i / max_batch_images], options.image, i % max_batch_images, 0);
  return vectors;
}

}  // namespace pm::server
