// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/passages.h"

#include <ATen/ATen.h>

#include "worker/layers/loader.h"

namespace pm::models {

namespace {

/// Returns the best passages of all ranks for each text on rank 0, and nothing elsewhere. A rank sends `count`
/// candidates for each text; where its shard has fewer, the rest have the number -1.
std::vector<std::vector<layers::ScoredPassage>> merged(std::vector<std::vector<layers::ScoredPassage>> own,
                                                       int64_t count, comm::Communicator& comm) {
  if (comm.size() == 1) return own;
  const auto texts = static_cast<int64_t>(own.size());
  const at::Tensor scores = at::zeros({texts, count}, at::kFloat), numbers = at::full({texts, count}, -1, at::kLong);
  for (int64_t text = 0; text < texts; ++text) {
    const std::vector<layers::ScoredPassage>& found = own[static_cast<size_t>(text)];
    for (size_t i = 0; i < found.size(); ++i) {
      scores.mutable_data_ptr<float>()[text * count + static_cast<int64_t>(i)] = found[i].score;
      numbers.mutable_data_ptr<int64_t>()[text * count + static_cast<int64_t>(i)] = found[i].number;
    }
  }
  const std::vector<int64_t> rows(static_cast<size_t>(comm.size()), texts);
  const at::Tensor all_scores = comm.gatherv(scores, rows, 0), all_numbers = comm.gatherv(numbers, rows, 0);
  if (comm.rank() != 0) return {};
  std::vector<std::vector<layers::ScoredPassage>> best(own.size());
  for (int64_t row = 0; row < texts * comm.size(); ++row) {
    for (int64_t i = row * count; i < (row + 1) * count; ++i) {
      const int64_t number = all_numbers.const_data_ptr<int64_t>()[i];
      if (number >= 0)
        best[static_cast<size_t>(row % texts)].push_back({all_scores.const_data_ptr<float>()[i], number});
    }
  }
  for (std::vector<layers::ScoredPassage>& one : best) layers::keep_best(one, count);
  return best;
}

}  // namespace

PassagesHead::PassagesHead(const policy::Model& model, const policy::Head& head, const policy::PassagesSpec& spec,
                           layers::Loader& loader)
    : Head(model, head), count_(spec.count) {
  int64_t first = 0;
  for (const policy::Param& file : spec.embeddings) {
    rows_.push_back({loader.load(file), first + loader.range(file).begin});
    first += file.shape[0];
  }
}

void PassagesHead::validate(const policy::Model& model, const policy::Head& head, const policy::PassagesSpec&) {
  const policy::Stack* stack = model.stack(head.stack);
  if (!stack || !stack->output.pooler) policy::refuse_architecture(model, "searches passages without a pooled vector");
}

void PassagesHead::run(std::span<RequestForward> requests) const {
  std::vector<RequestForward*> with;
  std::vector<at::Tensor> vectors;
  for (RequestForward& request : requests) {
    const auto pooled = request.pooled.find(head_.stack);
    if (pooled == request.pooled.end() || !request.wants_any(head_.outputs)) continue;
    with.push_back(&request);
    vectors.push_back(pooled->second.to(at::kFloat));
  }
  if (with.empty()) return;
  comm::Communicator& comm = with[0]->comm;
  const auto best = merged(layers::search_passages(at::cat(vectors).contiguous(), rows_, count_), count_, comm);
  if (comm.rank() != 0) return;
  size_t text = 0;
  for (size_t i = 0; i < with.size(); ++i) {
    const int64_t rows = vectors[i].size(0);
    const at::Tensor scores = at::empty({rows, count_}, at::kFloat), numbers = at::empty({rows, count_}, at::kLong);
    for (int64_t row = 0; row < rows; ++row, ++text) {
      for (int64_t place = 0; place < count_; ++place) {
        const layers::ScoredPassage& one = best[text].at(static_cast<size_t>(place));
        scores.mutable_data_ptr<float>()[row * count_ + place] = one.score;
        numbers.mutable_data_ptr<int64_t>()[row * count_ + place] = one.number;
      }
    }
    if (with[i]->wants(head_.outputs[0], true)) with[i]->put(head_.outputs[0], scores);
    if (with[i]->wants(head_.outputs[1], true)) with[i]->put(head_.outputs[1], numbers);
  }
}

}  // namespace pm::models
