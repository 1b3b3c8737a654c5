// See executor.h: tensor parallelism.
#include <ATen/ATen.h>

#include "worker/base/error.h"
#include "worker/parallel/executor.h"

namespace pm::parallel {

namespace {

class TensorExecutor final : public Executor {
 public:
  explicit TensorExecutor(const Shard& shard)
      : comm_(shard.communicator),
        policy_(*shard.model),
        loader_(*shard.checkpoint, *shard.cuts, comm_->rank(), shard.precision, shard.progress),
        model_(policy_, loader_) {
    check_weights(*shard.cuts);
    if (shard.kv_blocks > 0 && generates()) cache_.emplace(models::Model::generator(policy_), loader_, shard.kv_blocks, shard.precision);
  }

  void check(const Arrays& inputs) const override { models::inputs_of(policy_, inputs); }

  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::Wanted& wanted) override {
    std::vector<models::Inputs> inputs;
    for (const Arrays& request : requests) inputs.push_back(models::inputs_of(policy_, request));
    return model_.forward(inputs, wanted, *comm_);
  }

  void copy_blocks(std::span<const int32_t> pairs) override {
    if (!cache_) return;
    for (size_t layer = 0; layer < models::Model::generator(policy_).layers.size(); ++layer) {
      for (at::Tensor* blocks : {&cache_->keys(layer), &cache_->values(layer)}) {
        for (size_t i = 0; i + 1 < pairs.size(); i += 2) (*blocks)[pairs[i + 1]].copy_((*blocks)[pairs[i]]);
      }
    }
  }

  at::Tensor step(models::StepRows& rows) override {
    if (!cache_) throw Error(ErrorKind::Request, "InvalidRequest", policy_.architecture + " was loaded without KV blocks, so that it cannot generate");
    return model_.step(rows, *cache_, *comm_);
  }

  bool generates() const override { return model_.head() != nullptr; }

  Tokens greedy(const at::Tensor& hidden) override {
    const layers::LogitsHead& head = *model_.head()->logits();
    auto [value, index] = at::max(head.local(model_.head()->features(hidden)), 1);
    if (comm_->size() == 1) return index;
    const at::Tensor mine = at::stack({value.to(at::kDouble), (index + head.first()).to(at::kDouble)}).unsqueeze(0);  // [1, 2, rows]
    const std::vector<int64_t> ones(static_cast<size_t>(comm_->size()), 1);
    const at::Tensor all = comm_->gatherv(mine.contiguous(), ones, 0);                                                  // [ranks, 2, rows]
    if (comm_->rank() != 0) return {};
    at::Tensor best = all[0][0].clone(), token = all[0][1].clone();
    for (int64_t rank = 1; rank < all.size(0); ++rank) {
      const at::Tensor better = all[rank][0] > best;
      best = at::where(better, all[rank][0], best);
      token = at::where(better, all[rank][1], token);
    }
    return token.to(at::kLong);
  }

  at::Tensor logits(const at::Tensor& hidden) override { return model_.head()->scores(hidden, *comm_); }

  comm::Communicator& communicator() override { return *comm_; }
  int64_t weight_bytes() const override { return loader_.resident_bytes(); }
  int64_t kv_bytes() const override { return cache_ ? cache_->bytes() : 0; }

 private:
  /// What a rank holds is what the planner counted, but for the alignment of each tensor; anything else would make plans lies.
  void check_weights(const Cuts& cuts) const {
    const int64_t planned = cuts.weight_bytes(policy_.facts, comm_->rank()), held = loader_.resident_bytes();
    const auto slack = static_cast<int64_t>(policy_.params().size()) * ops::Arena::alignment;
    if (held >= planned && held <= planned + slack) return;
    throw std::logic_error("rank " + std::to_string(comm_->rank()) + " of " + policy_.architecture + " holds " + std::to_string(held) + " bytes of weights, its plan says " +
                           std::to_string(planned));
  }

  std::shared_ptr<comm::Communicator> comm_;
  const policy::Model& policy_;
  layers::Loader loader_;
  models::Model model_;
  std::optional<layers::KvCache> cache_;
};

}  // namespace

std::unique_ptr<Executor> tensor_executor(const Shard& shard) { return std::make_unique<TensorExecutor>(shard); }

}  // namespace pm::parallel
