// SPDX-License-Identifier: Apache-2.0
// Cases of token sampling on the device, which must choose the tokens that the host's sampler chooses.
#include <ATen/ATen.h>

#include <cmath>

#include "bench/ops/case.h"
#include "worker/engine/sampling/philox.h"
#include "worker/engine/sampling/sampler.h"

namespace pm::bench {

namespace {

/// Returns the host's choices for a batch, whose edits are applied first.
at::Tensor host_choices(const at::Tensor& scores, const ops::SampleBatch& batch) {
  const int64_t vocabulary = scores.size(1);
  at::Tensor edited = scores.clone();
  for (const auto& [row, edit] : batch.edits) {
    float& score = edited.mutable_data_ptr<float>()[row * vocabulary + edit.id];
    score = (score < 0 ? score * edit.factor : score / edit.factor) - edit.subtrahend;
  }
  std::vector<int64_t> ids;
  for (size_t i = 0; i < batch.sampling.size(); ++i) {
    const ops::RowSampling& row = batch.sampling[i];
    const engine::SamplingParams params{.do_sample = row.sample,
                                        .temperature = row.temperature,
                                        .top_k = row.top_k,
                                        .top_p = row.top_p,
                                        .seed = row.seed,
                                        .min_p = row.min_p};
    const float* first = edited.const_data_ptr<float>() + batch.rows[i] * vocabulary;
    ids.push_back(engine::sample_token({first, static_cast<size_t>(vocabulary)}, params, {},
                                       engine::uniform(row.seed, row.sequence, row.position)));
  }
  return at::tensor(ids);
}

ops::SampleBatch make_batch(int64_t rows, const ops::RowSampling& sampling, bool has_edits) {
  ops::SampleBatch batch;
  for (int64_t row = 0; row < rows; ++row) {
    batch.sampling.push_back(sampling);
    batch.sampling.back().sequence = static_cast<uint64_t>(row);
    batch.rows.push_back(row);
    for (int32_t id = 0; has_edits && id < 200; ++id) {
      batch.edits.push_back(
          {static_cast<int32_t>(row), {.id = 7 * id, .factor = 1.25f, .subtrahend = id == 0 ? INFINITY : 0.5f}});
    }
  }
  return batch;
}

}  // namespace

std::vector<Case> sample_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int64_t rows, int64_t vocabulary, const ops::RowSampling& sampling,
                       bool has_edits) {
    Case one{.name = name + ", " + std::to_string(rows) + (rows == 1 ? " row of " : " rows of ") +
                     std::to_string(vocabulary),
             .bytes = 4. * static_cast<double>(rows * vocabulary),
             .is_large = rows * vocabulary > 2'000'000};
    one.make = [=]() -> Problem {
      const at::Tensor scores = 4 * at::randn({rows, vocabulary});
      const ops::SampleBatch batch = make_batch(rows, sampling, has_edits);
      const auto expected = [=]() -> Outputs { return {host_choices(scores, batch)}; };
      const auto on = [=](at::Device device) -> Run {
        return [batch, there = scores.to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true)](
                   const ops::Backend& backend, const Call& call) -> Outputs {
          if (!backend.has_sampler()) return {};
          return {backend.sample(call.keep_inputs ? there.clone() : there, batch)};
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  };
  const ops::RowSampling greedy{},
      nucleus{.temperature = 0.8, .top_p = 0.95, .top_k = 50, .seed = 9, .position = 4, .sample = true},
      min_p{.temperature = 1.3, .min_p = 0.05, .seed = 9, .position = 5, .sample = true};
  for (const auto& [rows, vocabulary] : {std::pair<int64_t, int64_t>{1, 32000}, {8, 50257}, {32, 128256}}) {
    add("greedy", rows, vocabulary, greedy, false);
    add("greedy, 200 edits", rows, vocabulary, greedy, true);
    add("top_k and top_p", rows, vocabulary, nucleus, false);
    add("min_p", rows, vocabulary, min_p, true);
  }
  return cases;
}

std::vector<Case> best_scores_cases() {
  std::vector<Case> cases;
  for (const auto& [rows, vocabulary] : {std::pair<int64_t, int64_t>{1, 128256}, {4, 50257}, {64, 32000}}) {
    Case one{.name = std::to_string(rows) + (rows == 1 ? " row of " : " rows of ") + std::to_string(vocabulary),
             .bytes = 4. * static_cast<double>(rows * vocabulary),
             .is_large = rows * vocabulary > 2'000'000};
    one.make = [rows = rows, vocabulary = vocabulary]() -> Problem {
      const at::Tensor scores = at::randn({rows, vocabulary});
      const auto expected = [=]() -> Outputs {
        const auto [values, ids] = at::max(scores, 1);
        return {values, ids};
      };
      const auto on = [=](at::Device device) -> Run {
        return [there = scores.to(device)](const ops::Backend& backend, const Call&) -> Outputs {
          const ops::BestScores best = backend.best_scores(there);
          return {best.values, best.ids};
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace pm::bench
