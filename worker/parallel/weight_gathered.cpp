// See executor.h: weight-gathered. Each rank runs the whole model over a batch of its own; what it does not keep of the weights comes by when a layer needs it.
#include <ATen/ATen.h>

#include "worker/base/error.h"
#include "worker/parallel/executor.h"
#include "worker/parallel/fetcher.h"

namespace pm::parallel {

namespace {

class WeightGathered final : public Executor {
 public:
  explicit WeightGathered(const Shard& shard)
      : world_(shard.communicator),
        alone_(comm::in_process(1, std::chrono::seconds(1))[0]),
        policy_(*shard.model),
        cuts_(deal(policy_.facts, 1, shard.plan->precision)),
        loader_(*shard.checkpoint, cuts_, 0, shard.plan->precision, shard.progress, shard.device),
        units_(policy_, *shard.plan, world_->rank()),
        fetcher_(units_, loader_, shard.plan->gathering->buffer, world_),
        model_(policy_, all_layers(policy_.facts), kept_apart()) {
    units_.load(loader_);
    loader_.loaded();
    check_weights(shard, shard.plan->ranks.at(static_cast<size_t>(world_->rank())).predicted.weights, loader_.resident_bytes());
    if (units_.in_files()) loader_.go_on_past_cache();
    if (shard.kv_blocks > 0 && generates()) make_blocks(shard.kv_blocks);
  }

  void check(const Arrays& inputs) const override { models::inputs_of(policy_, inputs); }

  void begin(const Coming& coming) override {
    inputs_.clear();
    for (const Arrays& request : coming.inputs) inputs_.push_back(models::inputs_of(policy_, request));
    fetcher_.begin({places_of_step(coming), places_of_pass(coming.wanted)});
    for (models::Inputs& request : inputs_) request = std::move(request).on(device());
  }

  void finish() override {
    fetcher_.finish();
    inputs_.clear();
  }

  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::Wanted& wanted) override {
    if (requests.size() != inputs_.size()) throw std::logic_error(std::to_string(requests.size()) + " requests, and begin() was told of " + std::to_string(inputs_.size()));
    models::Handover handed;
    return model_.forward(inputs_, wanted, handed, *alone_);
  }

  void copy_blocks(std::span<const int32_t> pairs) override {
    if (cache_) cache_->copy_blocks(pairs);
  }

  at::Tensor step(models::StepRows& rows) override {
    if (!cache_) throw Error(ErrorKind::Request, "InvalidRequest", policy_.architecture + " was loaded without KV blocks, so that it cannot generate");
    rows = std::move(rows).on(device());
    models::Handover handed;
    model_.step(rows, &*cache_, handed, *alone_);
    return handed.at(models::Model::generator(policy_).name);
  }

  bool generates() const override { return models::Model::generates(policy_); }
  Tokens greedy(const at::Tensor& hidden) override { return std::get<1>(at::max(model_.head()->logits()->local(model_.head()->features(hidden)), 1)).cpu(); }
  at::Tensor logits(const at::Tensor& hidden) override { return model_.head()->scores(hidden, *alone_).cpu(); }

  comm::Communicator& communicator() override { return *world_; }
  at::Device device() const override { return loader_.device(); }
  int64_t weight_bytes() const override { return loader_.resident_bytes(); }
  int64_t kv_bytes() const override { return cache_ ? cache_->bytes() : 0; }

  void make_blocks(int64_t blocks) override {
    cache_.reset();
    const policy::Stack& generating = models::Model::generator(policy_);
    if (blocks > 0) cache_.emplace(generating, Range{0, static_cast<int64_t>(generating.layers.size())}, loader_, blocks, cuts_.compute_type());
  }

 private:
  layers::Loader& kept_apart() {
    units_.gather_with(fetcher_);
    loader_.keep_with(units_);
    return loader_;
  }

  Places place_of(const std::string& stack) const {
    for (size_t i = 0; i < policy_.stacks.size(); ++i) {
      if (policy_.stacks[i].name == stack) return units_.of_stack(i);
    }
    return 0;
  }

  Places places_of_step(const Coming& coming) const {
    Places places = 0;
    const policy::Stack& generating = models::Model::generator(policy_);
    if (coming.tokens) places |= place_of(generating.name);
    if (coming.source) places |= place_of(generating.layers[0].cross->source);
    return places | (coming.best ? units_.best() : 0) | (coming.scores ? units_.scores() : 0);
  }

  Places places_of_pass(const models::Wanted& wanted) const {
    Places places = 0;
    for (const models::Inputs& request : inputs_) {
      for (const auto& [stack, feed] : request.feeds) places |= place_of(stack);
    }
    return places | (model_.reads_vocabulary(inputs_, wanted, *alone_) ? units_.scores() : 0);
  }

  const std::shared_ptr<comm::Communicator> world_, alone_;   ///< all ranks, for weights; this one, for what it computes
  const policy::Model& policy_;
  const Cuts cuts_;
  layers::Loader loader_;
  Units units_;
  Fetcher fetcher_;
  models::Model model_;
  std::optional<layers::KvCache> cache_;
  std::vector<models::Inputs> inputs_;   ///< of the step under way
};

}  // namespace

std::unique_ptr<Executor> weight_gathered(const Shard& shard) { return std::make_unique<WeightGathered>(shard); }

}  // namespace pm::parallel
