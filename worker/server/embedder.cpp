// See embedder.h.
#include "worker/server/embedder.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "worker/server/api_error.h"
#include "worker/server/numbers.h"

namespace pm::server {
namespace {

constexpr size_t kPassImages = 8;

/// Rows [tokens, width] of one sequence to one vector, by sentence-transformers' definitions.
std::vector<float> pooled(std::span<const float> states, size_t tokens, size_t width, Pooling pooling) {
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

std::vector<float> vector_of(const Arrays& outputs, const Embedding& how, size_t index, size_t tokens) {
  const auto& values = floats_of(outputs, how.output, how.pooling == Pooling::None ? 2 : 3);
  const auto& shape = outputs.at(how.output).shape;
  const auto width = static_cast<size_t>(shape.back());
  std::vector<float> vector;
  if (how.pooling == Pooling::None) {
    vector.assign(values.begin() + static_cast<ptrdiff_t>(index * width), values.begin() + static_cast<ptrdiff_t>((index + 1) * width));
  } else {
    const auto length = static_cast<size_t>(shape[1]);
    vector = pooled(std::span(values).subspan(index * length * width, length * width), tokens == 0 ? length : tokens, width, how.pooling);
  }
  if (how.normalize) normalize(vector);
  return vector;
}

}  // namespace

schema::Properties embedding_schema(const Serving& serving) {
  const Abilities& can = serving.abilities;
  std::vector<std::string> words;
  if (!can.states.empty()) words = {"cls", "last", "max", "mean"};
  if (!can.pooler.empty()) words.push_back("pooler");
  schema::Properties made;
  if (!words.empty()) made.push_back({"pooling", schema::one_of(words, "How tokens become one vector; default the model's own way")});
  else made.push_back({"pooling", {{"type", "null"}}});
  made.push_back({"normalize", schema::boolean("false leaves the length of vectors as it is")});
  return made;
}

EmbeddingChoice embedding_choice(Fields& fields, const Serving& serving) {
  const Abilities& can = serving.abilities;
  EmbeddingChoice choice{can.text, can.image};
  const auto pooling = fields.text("pooling");
  const auto normal = fields.boolean("normalize");
  if (pooling) {
    static const std::map<std::string, Pooling> words{{"mean", Pooling::Mean}, {"cls", Pooling::First}, {"last", Pooling::Last}, {"max", Pooling::Max}};
    const auto found = words.find(*pooling);
    std::string allowed = can.states.empty() ? "" : "cls, last, max, mean";
    if (!can.pooler.empty()) allowed += std::string(allowed.empty() ? "" : ", ") + "pooler";
    const bool by_pooler = *pooling == "pooler" && !can.pooler.empty();
    if (!by_pooler && (found == words.end() || can.states.empty())) throw bad_field("pooling", shown(*pooling), allowed);
    auto& own = can.texts ? choice.text : choice.image;
    own.output = by_pooler ? can.pooler : can.states;
    own.pooling = by_pooler ? Pooling::None : found->second;
  } else if (!can.no_embedding.empty()) {
    throw ApiError(400, "not_served", can.no_embedding + "; name a \"pooling\" (cls, last, max, mean) to embed without it", "pooling");
  }
  if (normal) choice.text.normalize = choice.image.normalize = *normal;
  return choice;
}

Row embedding_row(const Serving& serving, const std::string& text, bool truncate, const std::string& field) {
  std::string_view part = text;
  constexpr std::string_view kWhite = " \t\r\n\v\f";
  if (serving.abilities.strip) {
    part.remove_prefix(std::min(part.find_first_not_of(kWhite), part.size()));
    part = part.substr(0, part.find_last_not_of(kWhite) + 1);
  }
  return row_of(serving, serving.abilities.prefix + std::string(part), truncate, field);
}

std::vector<std::vector<float>> embed(const Serving& serving, const Call& call, const EmbeddingChoice& choice, const std::vector<Embeddable>& items) {
  std::vector<size_t> text_at, image_at;   // where the items of each kind stand
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
  if (!rows.empty() && choice.text.output.empty()) refuse_texts(serving, "input");

  std::vector<PassInputs> passes;
  const auto starts = batches(rows, kPassTokens);
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    passes.push_back({arrays_of(serving, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {choice.text.output}});
  const size_t text_passes = passes.size();
  for (size_t first = 0; first < images.size(); first += kPassImages) {
    const auto end = std::min(images.size(), first + kPassImages);
    const std::vector<Array> some(images.begin() + static_cast<ptrdiff_t>(first), images.begin() + static_cast<ptrdiff_t>(end));
    passes.push_back({{{"pixel_values", stacked(some, "input")}}, {choice.image.output}});
  }
  const auto outputs = run_passes(serving, call, std::move(passes));

  std::vector<std::vector<float>> vectors(items.size());
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    for (size_t r = starts[b]; r < starts[b + 1]; ++r) vectors[text_at[r]] = vector_of(outputs[b], choice.text, r - starts[b], rows[r].size());
  for (size_t i = 0; i < images.size(); ++i) vectors[image_at[i]] = vector_of(outputs[text_passes + i / kPassImages], choice.image, i % kPassImages, 0);
  return vectors;
}

}  // namespace pm::server
