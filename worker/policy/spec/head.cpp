// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/head.h"

namespace pm::policy {

namespace {

/// Returns the rows of a matrix, 1 for a vector, and 0 where the checkpoint has no tensor.
int64_t rows_of(const Linear& linear, bool vector) {
  return linear.weight.shape.empty() ? 0 : vector ? 1 : linear.weight.shape[0];
}

}  // namespace

void HeadTransform::collect(ParamCollector& all) const {
  all.add(dense);
  all.add(norm);
}

void LogitsSpec::collect(ParamCollector& all) const {
  transform.collect(all);
  all.add(linear);
  all.add(concat);
}

void ClustersSpec::collect(ParamCollector& all) const {
  for (const ScoreCluster& cluster : clusters) {
    all.add(cluster.projection);
    all.add(cluster.scores);
  }
  all.add(others);
}

void ClassesSpec::collect(ParamCollector& all) const {
  if (mlp) mlp->collect(all);
  transform.collect(all);
  all.add(linear);
}

void CellsSpec::collect(ParamCollector& all) const {
  transform.collect(all);
  all.add(tokens);
  all.add(columns);
}

void SpansSpec::collect(ParamCollector& all) const {
  for (const Linear* linear : {&start, &end_dense, &end, &answer_dense, &answer}) all.add(*linear);
  all.add(end_norm);
}

void PairsSpec::collect(ParamCollector& all) const {
  all.add(query);
  all.add(key);
}

int64_t TimeDelaySpec::reach(bool dilated) const {
  int64_t frames = 0;
  for (const TimeDelayLayer& layer : layers) frames += (layer.taps - 1) * (dilated ? layer.dilation : 1);
  return frames;
}

void TimeDelaySpec::collect(ParamCollector& all) const {
  transform.collect(all);
  for (const TimeDelayLayer& layer : layers) all.add(layer.linear);
  all.add(vector);
  all.add(classes);
}

void CodebookSpec::collect(ParamCollector& all) const {
  all.add(states);
  all.add(scores);
  all.add(entries);
  all.add(quantized);
}

void BoxesSpec::collect(ParamCollector& all) const {
  for (const Linear& layer : layers) all.add(layer);
}

void PixelShuffleSpec::collect(ParamCollector& all) const { all.add(linear); }

void MasksSpec::collect(ParamCollector& all) const {
  const auto add = [&](const MaskConvolution& one) {
    all.add(one.kernel);
    all.add(one.norm.weight);
    all.add(one.norm.bias);
  };
  all.add(query);
  all.add(key);
  for (const MaskConvolution& one : convolutions) add(one);
  for (const Fusion& fusion : fusions) {
    all.add(fusion.adapter);
    add(fusion.refine);
  }
  all.add(output);
}

void SimilaritySpec::collect(ParamCollector& all) const { all.add(scalar); }

std::optional<Pool> Head::pool() const {
  return std::visit(
      [](const auto& spec) -> std::optional<Pool> {
        if constexpr (requires { spec.pool; })
          return spec.pool;
        else
          return std::nullopt;
      },
      kind);
}

void PassagesSpec::collect(ParamCollector& all) const {
  for (const Param& one : embeddings) all.add(one);
}

int64_t Head::scores() const {
  if (const auto* logits = as<LogitsSpec>()) return rows_of(logits->linear, false);
  if (const auto* classes = as<ClassesSpec>()) return classes->linear ? rows_of(*classes->linear, classes->vector) : 0;
  if (const auto* cells = as<CellsSpec>()) return rows_of(cells->tokens, true);
  if (as<BoxesSpec>()) return 4;
  if (const auto* pixels = as<PixelShuffleSpec>()) return rows_of(pixels->linear, false);
  if (const auto* vocabulary = as<ClustersSpec>()) {
    int64_t ids = 0;
    for (const ScoreCluster& cluster : vocabulary->clusters) ids += rows_of(cluster.scores, false);
    return ids;
  }
  if (const auto* codebook = as<CodebookSpec>())
    return rows_of(codebook->states, false) + rows_of(codebook->quantized, false);
  return 0;
}

void Head::collect(ParamCollector& all) const {
  all.add(layer_weights);
  std::visit([&](const auto& spec) { spec.collect(all); }, kind);
}

}  // namespace pm::policy
