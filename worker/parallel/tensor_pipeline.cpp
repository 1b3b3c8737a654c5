// SPDX-License-Identifier: Apache-2.0
// Implements tensor and pipeline parallelism. A stage receives the state of the previous stage, runs its layers and
// sends the state on; one stage alone is plain tensor parallelism.
#include <ATen/ATen.h>

#include <algorithm>

#include "worker/base/error.h"
#include "worker/parallel/decode_graphs.h"
#include "worker/parallel/executor.h"
#include "worker/parallel/stage_transfer.h"

namespace pm::parallel {

namespace {

/// Returns the plan of the rank with its stacks in the order of the model; plans from before pipeline stages list them
/// in another order.
RankPlan sorted_rank_plan(const Plan& plan, int rank, const policy::Model& model) {
  RankPlan rank_plan = plan.ranks.at(static_cast<size_t>(rank));
  const auto order = [&](const auto& layers) {
    return std::find_if(model.stacks.begin(), model.stacks.end(),
                        [&](const policy::Stack& stack) { return stack.name == layers.first; });
  };
  std::sort(rank_plan.layers.begin(), rank_plan.layers.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return rank_plan;
}

class TensorPipelineExecutor final : public Executor,
                                     private GenerationExecutor,
                                     private SamplingExecutor,
                                     private DeviceSampler {
 public:
  explicit TensorPipelineExecutor(const Shard& shard)
      : world_(shard.communicator),
        rank_plan_(sorted_rank_plan(*shard.plan, world_->rank(), *shard.model)),
        tensor_(world_->split(world_->rank() - rank_plan_.tensor, shard.plan->tensor)),
        previous_(rank_plan_.stage > 0 ? world_->rank() - shard.plan->tensor : -1),
        next_(rank_plan_.stage + 1 < shard.plan->pipeline ? world_->rank() + shard.plan->tensor : -1),
        policy_(*shard.model),
        metadata_(stage_metadata(policy_.metadata, rank_plan_.layers)),
        partition_(make_partition(metadata_, shard.plan->tensor, shard.plan->precision)),
        loader_(*shard.checkpoint, partition_, rank_plan_.tensor, shard.plan->precision, shard.progress, shard.device),
        model_(policy_, rank_plan_.layers, adapted_loader(shard.adapters)),
        max_sequence_length_(shard.plan->sequence_length),
        sequences_(per_dp_rank(shard.plan->concurrency, shard.plan->data)),
        kv_type_(shard.plan->kv_precision.value_or(partition_.compute_type())),
        graphs_enabled_(shard.graphs),
        graphs_supported_(previous_ < 0 && next_ < 0 && !shard.device.is_cpu() && !policy::has_experts(policy_) &&
                          !policy::is_recurrent(models::Model::generating_stack(policy_)) &&
                          !policy::has_latent_attention(models::Model::generating_stack(policy_)) &&
                          (tensor_->size() == 1 || tensor_->supports_graph_capture())) {
    loader_.loaded();
    if (adapters_) adapters_->check_sites(rank_plan_.layers);
    check_weights(shard, partition_.weight_bytes(metadata_, rank_plan_.tensor), loader_.resident_bytes());
    if (shard.kv_blocks > 0 && caches()) make_blocks(shard.kv_blocks);
  }

  void check(const Arrays& inputs) const override { models::make_inputs(policy_, inputs); }

  std::vector<Arrays> forward(std::span<const Arrays> requests, const models::OutputSelection& wanted) override {
    std::vector<models::Inputs> inputs;
    for (const Arrays& request : requests) inputs.push_back(models::make_inputs(policy_, request).on(device()));
    models::StageState state = receive_state();
    std::vector<Arrays> outputs = model_.forward(inputs, wanted, state, *tensor_);
    send_state(state);
    return outputs;
  }

  GenerationExecutor* generation() override { return models::Model::generates(policy_) ? this : nullptr; }
  SamplingExecutor* sampling() override { return is_last() && models::Model::generates(policy_) ? this : nullptr; }
  DeviceSampler* device_sampler() override { return ops::has_sampler(device().type()) ? this : nullptr; }
  comm::Communicator& communicator() override { return *tensor_; }
  at::Device device() const override { return loader_.device(); }
  int64_t weight_bytes() const override { return loader_.resident_bytes(); }
  int64_t kv_bytes() const override { return cache_ ? cache_->bytes() : 0; }
  int64_t state_bytes() const override { return cache_ ? cache_->state_bytes() : 0; }
  layers::AdapterSlots* adapters() override { return adapters_ ? &*adapters_ : nullptr; }

 private:
  void begin_step(const StepRequirements& requirements) override { bucket_ = requirements.bucket; }

  layers::Loader& adapted_loader(const layers::AdapterCapacity& capacity) {
    if (capacity.slots > 0) loader_.adapt_with(adapters_.emplace(policy_, capacity, loader_.device()));
    return loader_;
  }

  bool caches() const override { return models::Model::caches(policy_); }

  void make_blocks(int64_t blocks) override {
    graphs_.reset();  // captured graphs write to the addresses of the freed blocks
    cache_.reset();
    with_blocks_ = blocks > 0;
    const policy::Stack& generating = models::Model::generating_stack(policy_);
    for (const auto& [stack, range] : rank_plan_.layers) {
      if (with_blocks_ && stack == generating.name && range.size() > 0)
        cache_.emplace(generating, range, loader_, blocks, kv_type_, sequences_);
    }
    graph_status_.captured = graph_status_.replayed = 0;
    if (cache_ && graphs_supported_ && !graph_status_.failed())  // it has failed on all ranks of the group
      graphs_.emplace(device(), max_sequence_length_, graphs_enabled_, *tensor_, graph_status_);
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
    if (!with_blocks_ && caches())
      throw Error(Reason::InvalidRequest,
                  policy_.architecture + " was loaded without KV blocks, so that it cannot generate");
    if (graphs_ && bucket_ > 0) return graphs_->run(rows, bucket_, decode_step()).hidden;
    rows = std::move(rows).on(device());
    models::StageState state = receive_state();
    model_.step(rows, cache_ ? &*cache_ : nullptr, state, *tensor_);
    send_state(state);
    return is_last() ? state.at(models::Model::generating_stack(policy_).name) : at::Tensor();
  }

  Tokens decode(models::StepRows& rows, const ops::SampleBatch& samples) override {
    if (!graphs_ || bucket_ == 0) throw std::logic_error("a step for which no CUDA graph was asked cannot be replayed");
    const DecodeResult result = graphs_->run(rows, bucket_, decode_step(), &samples);
    if (result.has_tokens) return result.tokens;
    const Tokens tokens = samples.is_greedy() ? greedy(result.hidden) : sample(result.hidden, samples);
    return tokens.defined() ? tokens.cpu() : tokens;
  }

  /// Returns the parts of a decode step that graphs capture.
  DecodeStep decode_step() {
    DecodeStep step{.hidden =
                        [this](models::StepRows& rows) {
                          models::StageState state;
                          model_.step(rows, &*cache_, state, *tensor_);
                          return state.at(models::Model::generating_stack(policy_).name);
                        },
                    .greedy = [this](const at::Tensor& hidden) { return greedy(hidden); },
                    .sample = {}};
    if (ops::has_sampler(device().type())) {
      step.sample = [this](const at::Tensor& hidden, const ops::SamplingBuffers& sampling) {
        const at::Tensor scores = model_.head()->scores(hidden, *tensor_);
        return scores.defined() ? ops::sample(scores, sampling) : Tokens();
      };
    }
    return step;
  }

  int64_t bucket(int64_t sequences) const override {
    return graphs_ && graphs_enabled_ && decodes_in_graphs() ? graphs_->bucket_size(sequences) : 0;
  }
  GraphCounts graphs() const override { return graph_status_.counts(); }

  Tokens greedy(const at::Tensor& hidden) override { return model_.head()->best(hidden, *tensor_); }

  at::Tensor logits(const at::Tensor& hidden) override {
    const at::Tensor scores = model_.head()->scores(hidden, *tensor_);
    return scores.defined() ? scores.cpu() : scores;
  }

  Tokens sample(const at::Tensor& hidden, const ops::SampleBatch& batch) override {
    const at::Tensor scores = model_.head()->scores(hidden, *tensor_);
    return scores.defined() ? ops::sample(scores, batch) : Tokens();
  }

  bool is_last() const { return next_ < 0; }
  /// Returns true for models that generate without an encoder, and whose attention reads no block tables of the host
  /// nor makes rows of distances there.
  bool decodes_in_graphs() const {
    const policy::Layer& layer = models::Model::generating_stack(policy_).layers.at(0);
    return !layer.cross && !layer.attention.content_buckets && !layer.attention.relative_content;
  }
  models::StageState receive_state() {
    return previous_ < 0 ? models::StageState{} : receive(*world_, previous_, device());
  }
  void send_state(const models::StageState& state) {
    if (next_ >= 0) send(state, *world_, next_);
  }

  std::shared_ptr<comm::Communicator> world_;
  const RankPlan rank_plan_;
  std::shared_ptr<comm::Communicator> tensor_;
  const int previous_, next_;  ///< same tensor-parallel rank in the neighbouring stages; -1 without one
  const policy::Model& policy_;
  const ModelMetadata metadata_;  ///< of the layers of this stage
  const Partition partition_;
  layers::Loader loader_;
  std::optional<layers::AdapterSlots> adapters_;
  models::Model model_;
  const int64_t max_sequence_length_;
  const int64_t sequences_;  ///< for whose recurrent states memory is allocated at first
  const DType kv_type_;      ///< of the KV cache
  const bool graphs_enabled_, graphs_supported_;
  int64_t bucket_ = 0;  ///< bucket of the current step
  GraphStatus graph_status_;
  std::optional<layers::KvCache> cache_;
  bool with_blocks_ = false;
  std::optional<DecodeGraphs> graphs_;
};

}  // namespace

std::unique_ptr<Executor> tensor_pipeline(const Shard& shard) {
  return std::make_unique<TensorPipelineExecutor>(shard);
}

}  // namespace pm::parallel
