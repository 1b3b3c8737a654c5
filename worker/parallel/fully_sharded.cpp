// SPDX-License-Identifier: Apache-2.0
// Implements Sharded (FSDP / ZeRO-3 style) and Offload execution. Each rank runs the whole model over a batch of its
// own; weights that it does not hold are gathered when a layer needs them.
#include <ATen/ATen.h>

#include "worker/base/error.h"
#include "worker/parallel/executor.h"
#include "worker/parallel/weight_prefetcher.h"

namespace pm::parallel {

namespace {

class FullyShardedExecutor final : public Executor, private GenerationExecutor, private SamplingExecutor {
 public:
  explicit FullyShardedExecutor(const Shard& shard)
      : world_(shard.communicator),
        alone_(comm::in_process(1, std::chrono::seconds(1))[0]),
        policy_(*shard.model),
        partition_(make_partition(policy_.metadata, 1, shard.plan->precision)),
        loader_(*shard.checkpoint, partition_, 0, shard.plan->precision, shard.progress, shard.device),
        units_(policy_, *shard.plan, world_->rank()),
        prefetcher_(units_, loader_, shard.plan->gathering->buffer, world_),
        model_(policy_, all_layers(policy_.metadata), sharded_loader(shard.adapters)),
        sequences_(per_dp_rank(shard.plan->concurrency, shard.plan->data)),
        kv_type_(shard.plan->kv_precision.value_or(partition_.compute_type())) {
    units_.load(loader_);
    if (adapters_) adapters_->check_sites(all_layers(policy_.metadata));
    loader_.loaded();
    check_weights(shard, shard.plan->ranks.at(static_cast<size_t>(world_->rank())).predicted.weights,
                  loader_.resident_bytes());
    if (units_.in_files()) loader_.use_direct_io();
    if (shard.kv_blocks > 0 && caches()) make_blocks(shard.kv_blocks);
  }

  void check(const Arrays& inputs) const override { models::make_inputs(policy_, inputs); }

  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::OutputSelection& wanted) override {
    if (requests.size() != inputs_.size())
      throw std::logic_error(std::to_string(requests.size()) + " requests in forward(), but begin() announced " +
                             std::to_string(inputs_.size()));
    models::StageState state;
    return model_.forward(inputs_, wanted, state, *alone_);
  }

  GenerationExecutor* generation() override { return models::Model::generates(policy_) ? this : nullptr; }
  SamplingExecutor* sampling() override { return models::Model::generates(policy_) ? this : nullptr; }
  comm::Communicator& communicator() override { return *world_; }
  at::Device device() const override { return loader_.device(); }
  int64_t weight_bytes() const override { return loader_.resident_bytes(); }
  int64_t kv_bytes() const override { return cache_ ? cache_->bytes() : 0; }
  int64_t state_bytes() const override { return cache_ ? cache_->state_bytes() : 0; }
  layers::AdapterSlots* adapters() override { return adapters_ ? &*adapters_ : nullptr; }

 private:
  void begin_step(const StepRequirements& requirements) override {
    inputs_.clear();
    for (const Arrays& request : requirements.inputs) inputs_.push_back(models::make_inputs(policy_, request));
    prefetcher_.begin({mask_of_step(requirements), mask_of_forward(requirements.wanted)});
    for (models::Inputs& request : inputs_) request = std::move(request).on(device());
  }

  void finish_step() override {
    prefetcher_.finish();
    inputs_.clear();
  }

  void abandon_step() noexcept override {
    prefetcher_.abandon();
    inputs_.clear();
  }

  bool caches() const override { return models::Model::caches(policy_); }

  void make_blocks(int64_t blocks) override {
    cache_.reset();
    const policy::Stack& generating = models::Model::generating_stack(policy_);
    if (blocks > 0)
      cache_.emplace(generating, Range{0, static_cast<int64_t>(generating.layers.size())}, loader_, blocks, kv_type_,
                     sequences_);
  }

  models::StackInput source_input(const Arrays& inputs) const override {
    return models::make_source_input(policy_, inputs);
  }

  void copy_blocks(std::span<const int32_t> pairs) override {
    if (cache_) cache_->copy_blocks(pairs);
  }

  void copy_states(std::span<const int32_t> pairs) override {
    if (cache_) cache_->states().copy(pairs);
  }

  at::Tensor step(models::StepRows& rows) override {
    if (!cache_ && caches())
      throw Error(Reason::InvalidRequest,
                  policy_.architecture + " was loaded without KV blocks, so that it cannot generate");
    rows = std::move(rows).on(device());
    models::StageState state;
    model_.step(rows, cache_ ? &*cache_ : nullptr, state, *alone_);
    return state.at(models::Model::generating_stack(policy_).name);
  }

  Tokens greedy(const at::Tensor& hidden) override { return model_.head()->best(hidden, *alone_).cpu(); }
  at::Tensor logits(const at::Tensor& hidden) override { return model_.head()->scores(hidden, *alone_).cpu(); }

  layers::Loader& sharded_loader(const layers::AdapterCapacity& capacity) {
    if (capacity.slots > 0) loader_.adapt_with(adapters_.emplace(policy_, capacity, loader_.device()));
    units_.gather_with(prefetcher_);
    loader_.shard_with(units_);
    return loader_;
  }

  StageMask mask_of(const std::string& stack) const {
    for (size_t i = 0; i < policy_.stacks.size(); ++i) {
      if (policy_.stacks[i].name == stack) return units_.stack_mask(i);
    }
    return 0;
  }

  StageMask mask_of_step(const StepRequirements& requirements) const {
    StageMask mask = 0;
    const policy::Stack& generating = models::Model::generating_stack(policy_);
    if (requirements.tokens) mask |= mask_of(generating.name);
    if (requirements.source) mask |= mask_of(generating.layers[0].cross->source);
    return mask | (requirements.best ? units_.argmax_mask() : 0) |
           (requirements.scores > 0 ? units_.logits_mask(requirements.scores) : 0);
  }

  StageMask mask_of_forward(const models::OutputSelection& wanted) const {
    StageMask mask = 0;
    for (const models::Inputs& request : inputs_) {
      for (const auto& [stack, feed] : request.stack_inputs) mask |= mask_of(stack);
    }
    return mask | (model_.reads_vocabulary(inputs_, wanted, *alone_) ? units_.logits_mask() : 0);
  }

  const std::shared_ptr<comm::Communicator> world_,
      alone_;  ///< all ranks, for weights; this rank alone, for its computation
  const policy::Model& policy_;
  const Partition partition_;
  layers::Loader loader_;
  GatherUnits units_;
  WeightPrefetcher prefetcher_;
  std::optional<layers::AdapterSlots> adapters_;  ///< whole on every rank, each of which computes alone
  models::Model model_;
  const int64_t sequences_;  ///< for whose recurrent states memory is allocated at first
  const DType kv_type_;      ///< of the KV cache
  std::optional<layers::KvCache> cache_;
  std::vector<models::Inputs> inputs_;  ///< inputs of the current step
};

}  // namespace

std::unique_ptr<Executor> fully_sharded(const Shard& shard) { return std::make_unique<FullyShardedExecutor>(shard); }

}  // namespace pm::parallel
