// See executor.h: tensor x pipeline. A stage takes what the one before hands over, runs its layers and hands on; one stage is plain tensor parallelism.
#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "worker/base/error.h"
#include "worker/parallel/decode_graphs.h"
#include "worker/parallel/executor.h"
#include "worker/parallel/relay.h"

namespace pm::parallel {

namespace {

/// The rank's place, its stacks in the model's order: plans of before there were stages name them in an object.
RankPlan place_of(const Plan& plan, int rank, const policy::Model& model) {
  RankPlan place = plan.ranks.at(static_cast<size_t>(rank));
  const auto order = [&](const auto& layers) { return std::find_if(model.stacks.begin(), model.stacks.end(), [&](const policy::Stack& stack) { return stack.name == layers.first; }); };
  std::sort(place.layers.begin(), place.layers.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return place;
}

class TensorPipeline final : public Executor {
 public:
  explicit TensorPipeline(const Shard& shard)
      : world_(shard.communicator),
        place_(place_of(*shard.plan, world_->rank(), *shard.model)),
        tensor_(world_->split(world_->rank() - place_.tensor, shard.plan->tensor)),
        previous_(place_.stage > 0 ? world_->rank() - shard.plan->tensor : -1),
        next_(place_.stage + 1 < shard.plan->pipeline ? world_->rank() + shard.plan->tensor : -1),
        policy_(*shard.model),
        facts_(facts_of_stage(policy_.facts, place_.layers)),
        cuts_(deal(facts_, shard.plan->tensor, shard.plan->precision)),
        loader_(*shard.checkpoint, cuts_, place_.tensor, shard.plan->precision, shard.progress, shard.device),
        model_(policy_, place_.layers, loader_),
        longest_(shard.plan->sequence_length),
        graphs_wanted_(shard.graphs),
        recordable_(previous_ < 0 && next_ < 0 && !shard.device.is_cpu() && (tensor_->size() == 1 || tensor_->recordable())) {
    loader_.loaded();
    check_weights(shard, cuts_.weight_bytes(facts_, place_.tensor), loader_.resident_bytes());
    if (shard.kv_blocks > 0 && generates()) make_blocks(shard.kv_blocks);
  }

  void check(const Arrays& inputs) const override { models::inputs_of(policy_, inputs); }

  void begin(const Coming& coming) override { bucket_ = coming.bucket; }
  int64_t bucket(int64_t sequences) const override { return graphs_ && graphs_wanted_ && generates_alone() ? graphs_->places(sequences) : 0; }
  GraphCounts graphs() const override { return {recorded_, replayed_}; }

  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::Wanted& wanted) override {
    std::vector<models::Inputs> inputs;
    for (const Arrays& request : requests) inputs.push_back(models::inputs_of(policy_, request).on(device()));
    models::Handover handed = taken_over();
    std::vector<Arrays> outputs = model_.forward(inputs, wanted, handed, *tensor_);
    hand_on(handed);
    return outputs;
  }

  void copy_blocks(std::span<const int32_t> pairs) override {
    if (cache_) cache_->copy_blocks(pairs);
  }

  at::Tensor step(models::StepRows& rows) override {
    if (!with_blocks_) throw Error(ErrorKind::Request, "InvalidRequest", policy_.architecture + " was loaded without KV blocks, so that it cannot generate");
    if (graphs_ && bucket_ > 0) return graphs_->run(rows, bucket_, [&](models::StepRows& fixed) {
      models::Handover handed;
      model_.step(fixed, &*cache_, handed, *tensor_);
      return handed.at(models::Model::generator(policy_).name);
    });
    rows = std::move(rows).on(device());
    models::Handover handed = taken_over();
    model_.step(rows, cache_ ? &*cache_ : nullptr, handed, *tensor_);
    hand_on(handed);
    return last() ? handed.at(models::Model::generator(policy_).name) : at::Tensor();
  }

  bool generates() const override { return models::Model::generates(policy_); }
  bool last() const override { return next_ < 0; }

  Tokens greedy(const at::Tensor& hidden) override {
    const layers::LogitsHead& head = *model_.head()->logits();
    auto [value, index] = at::max(head.local(model_.head()->features(hidden)), 1);
    if (tensor_->size() == 1) return index;
    const at::Tensor mine = at::stack({value.to(at::kDouble), (index + head.first()).to(at::kDouble)}).unsqueeze(0);  // [1, 2, rows]
    const std::vector<int64_t> ones(static_cast<size_t>(tensor_->size()), 1);
    const at::Tensor all = tensor_->gatherv(mine.contiguous(), ones, 0);                                                  // [ranks, 2, rows]
    if (tensor_->rank() != 0) return {};
    at::Tensor best = all[0][0].clone(), token = all[0][1].clone();
    for (int64_t rank = 1; rank < all.size(0); ++rank) {
      const at::Tensor better = all[rank][0] > best;
      best = at::where(better, all[rank][0], best);
      token = at::where(better, all[rank][1], token);
    }
    return token.to(at::kLong);
  }

  at::Tensor logits(const at::Tensor& hidden) override {
    const at::Tensor scores = model_.head()->scores(hidden, *tensor_);
    return scores.defined() ? scores.cpu() : scores;
  }

  bool draws() const override { return ops::draws(device().type()); }
  Tokens draw(const at::Tensor& hidden, const ops::Draws& draws) override {
    const at::Tensor scores = model_.head()->scores(hidden, *tensor_);
    return scores.defined() ? ops::draw(scores, draws) : Tokens();
  }

  comm::Communicator& communicator() override { return *tensor_; }
  at::Device device() const override { return loader_.device(); }
  int64_t weight_bytes() const override { return loader_.resident_bytes(); }
  int64_t kv_bytes() const override { return cache_ ? cache_->bytes() : 0; }

  void make_blocks(int64_t blocks) override {
    graphs_.reset();   // they write where the blocks were
    cache_.reset();
    with_blocks_ = blocks > 0;
    const policy::Stack& generating = models::Model::generator(policy_);
    for (const auto& [stack, range] : place_.layers) {
      if (with_blocks_ && stack == generating.name && range.size() > 0) cache_.emplace(generating, range, loader_, blocks, cuts_.compute_type());
    }
    recorded_ = replayed_ = 0;
    if (cache_ && recordable_) graphs_.emplace(device(), longest_, graphs_wanted_, *tensor_, recorded_, replayed_);
  }

 private:
  bool generates_alone() const { return !models::Model::generator(policy_).layers.at(0).cross; }   // without an encoder
  models::Handover taken_over() { return previous_ < 0 ? models::Handover{} : receive(*world_, previous_, device()); }
  void hand_on(const models::Handover& handed) {
    if (next_ >= 0) send(handed, *world_, next_);
  }

  std::shared_ptr<comm::Communicator> world_;
  const RankPlan place_;
  std::shared_ptr<comm::Communicator> tensor_;
  const int previous_, next_;          ///< ranks of the neighbouring stages with the same share; -1: none
  const policy::Model& policy_;
  const Facts facts_;                  ///< of the stage
  const Cuts cuts_;
  layers::Loader loader_;
  models::Model model_;
  const int64_t longest_;              ///< tokens of the longest sequence
  const bool graphs_wanted_, recordable_;
  int64_t bucket_ = 0;                 ///< of the step under way
  std::atomic<int64_t> recorded_{0}, replayed_{0};
  std::optional<layers::KvCache> cache_;
  bool with_blocks_ = false;
  std::optional<DecodeGraphs> graphs_;
};

}  // namespace

std::unique_ptr<Executor> tensor_pipeline(const Shard& shard) { return std::make_unique<TensorPipeline>(shard); }

}  // namespace pm::parallel
