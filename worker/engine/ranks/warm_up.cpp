// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/ranks/warm_up.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "contract/image_patches.h"
#include "planner/memory.h"
#include "planner/strategies/layout.h"
#include "worker/engine/ranks/device.h"
#include "worker/engine/ranks/memory_budget.h"
#include "worker/models/probe_inputs.h"
#include "worker/ops/device_memory.h"
#include "worker/parallel/decode_graphs.h"

#include "base/log.h"

namespace pm::engine {

namespace {

/// Reserve for hidden states and attention weights of a forward request, which are returned and concatenated: twice the
/// largest answer. It stays free if the KV blocks that the plan promised still fit. A single rank keeps no reserve:
/// there only the request that does not fit fails.
constexpr int64_t answer_bytes = 2 * max_forward_values * float_bytes;

/// Returns the minimum over all ranks. It is sent as a CPU tensor, so that no device communicator is created for it.
int64_t all_reduce_min(int64_t value, comm::Communicator& world) {
  at::Tensor number = at::full({1}, value, at::kLong);
  if (world.rank() > 0) {
    world.send(number, 0);
    world.recv(number, 0);
    return number.item<int64_t>();
  }
  for (int rank = 1; rank < world.size(); ++rank) {
    at::Tensor other = at::empty_like(number);
    world.recv(other, rank);
    number = at::minimum(number, other);
  }
  for (int rank = 1; rank < world.size(); ++rank) world.send(number, rank);
  return number.item<int64_t>();
}

/// Barrier over all ranks, so that ranks that share a device measure memory in the same state.
void barrier_all_ranks(comm::Communicator& world) {
  if (world.size() > 1) all_reduce_min(0, world);
}

/// Captures a CUDA graph for each batch size by running steps of one token per sequence. The largest batch comes first,
/// so that all ranks capture in the same order and smaller graphs reuse the memory of larger ones.
void capture_graphs(Rank& rank, comm::Communicator& world, int64_t max_batch_size) {
  int64_t last = 0;
  for (int64_t sequences = max_batch_size; sequences > 0; --sequences) {
    if (parallel::DecodeGraphs::padded_batch_size(sequences) == last) continue;
    last = parallel::DecodeGraphs::padded_batch_size(sequences);
    const int64_t local_bucket = rank.generation().bucket(sequences),
                  bucket = world.size() > 1 ? all_reduce_min(local_bucket, world) : local_bucket;
    if (bucket == 0) return;  // at least one rank captures no graphs
    StepMessage message, after;
    message.bucket = static_cast<int32_t>(bucket);
    for (int32_t slot = 0; slot < sequences; ++slot) {
      message.entries.push_back(
          {.slot = slot, .reset_table = true, .tokens = {0}, .blocks = {0}, .output_kind = OutputKind::Argmax});
      after.freed_slots.push_back(slot);
    }
    rank.run(message);
    rank.run(after);
  }
}

/// Allocates `wanted` KV blocks, or fewer until the allocator holds at most `max_bytes` bytes; the allocator rounds up
/// the blocks of each layer.
int64_t allocate_kv_blocks(Rank& rank, int64_t wanted, int64_t block_bytes, int64_t max_bytes) {
  parallel::GenerationExecutor& generation = rank.generation();
  const at::Device device = rank.executor().device();
  for (int64_t blocks = wanted; blocks > 0;) {
    int64_t over = 0;
    try {
      generation.make_blocks(blocks);
      over = ops::device_memory(device).reserved - max_bytes;
      if (over <= 0 || block_bytes == 0) return blocks;
    } catch (const c10::OutOfMemoryError&) {
      over = block_bytes * (1 + blocks / 64);
    }
    generation.make_blocks(0);
    ops::release_unused(device);
    blocks -= (over + block_bytes - 1) / block_bytes;
  }
  return 0;
}

}  // namespace

StepMessage largest_step(const policy::Model& model, const Plan& plan, int64_t blocks, int64_t& needed) {
  const int64_t length = plan.sequence_length, source = source_length(model.metadata, length);
  const int64_t longest = blocks_for(length) + blocks_for(source);
  if (blocks < longest)
    throw std::invalid_argument(std::to_string(blocks) + " KV blocks are too few: one sequence of " +
                                std::to_string(length) + " tokens needs " + std::to_string(longest));
  const int64_t tokens = std::min(plan.step_tokens, length), dp_size = std::max(1, plan.data);
  const int64_t others =
      std::max<int64_t>(0, std::min({(plan.concurrency + dp_size - 1) / dp_size - 1, tokens - 1, blocks - longest}));
  int32_t next = 0;
  const auto take = [&](int64_t count) {
    std::vector<int32_t> taken;
    for (int64_t i = 0; i < count; ++i) taken.push_back(next++);
    return taken;
  };
  StepMessage message;
  StepEntry& chunk = message.entries.emplace_back();
  const int64_t chunk_tokens = tokens - others;
  chunk = {.slot = 0,
           .reset_table = true,
           .context = length - chunk_tokens,
           .tokens = std::vector<int32_t>(static_cast<size_t>(chunk_tokens)),
           .blocks = take(blocks_for(length)),
           .output_kind = OutputKind::Logits};
  Arrays blank;  // input of an encoder of images or audio
  if (source > 0) {
    if (models::Model::source_stack(model)->input.reads_media())
      chunk.source_inputs = blank = models::blank_source(model, source);
    else
      chunk.source = std::vector<int32_t>(static_cast<size_t>(source));
    chunk.source_blocks = take(blocks_for(source));
    chunk.source_tokens = source;
  }
  for (int64_t other = 1; other <= others; ++other) {
    StepEntry entry{.slot = static_cast<int32_t>(other),
                    .reset_table = true,
                    .context = 0,
                    .tokens = {0},
                    .blocks = take(1),
                    .output_kind = OutputKind::Logits};
    if (source > 0) entry.source_blocks = chunk.source_blocks, entry.source_tokens = source;
    message.entries.push_back(std::move(entry));
  }
  const int64_t row = std::clamp<int64_t>(
      max_forward_values / std::max<int64_t>(1, models::Model::generating_stack(model).vocab), 1, length);
  Arrays inputs = blank;
  inputs[inputs.empty() ? "input_ids" : "decoder_input_ids"] = {{1, row},
                                                                std::vector<int64_t>(static_cast<size_t>(row))};
  message.forward = ForwardJob{{std::move(inputs)}, false, false, {}};
  if (Arrays image = models::blank_image(model, counted_image_patches); !image.empty())
    message.forward->inputs.push_back(std::move(image));
  needed = next;
  return message;
}

namespace {

/// Runs the largest step with the KV blocks of one sequence, then captures CUDA graphs over them. Returns the device
/// memory at each moment. Leaves no KV blocks.
WarmUpMemory measure_memory(Rank& rank, const RankGroupConfig& config, comm::Communicator& world, int ranks_on_device,
                            int64_t max_batch_size) {
  parallel::Executor& executor = rank.executor();
  parallel::GenerationExecutor& generation = rank.generation();
  const at::Device device = executor.device();
  WarmUpMemory memory;
  memory.ranks_on_device = ranks_on_device;
  int64_t needed = 0;
  const StepMessage message = largest_step(*config.model, *config.plan, config.kv_blocks, needed);
  StepMessage after;
  for (const StepEntry& entry : message.entries) after.freed_slots.push_back(entry.slot);
  const auto run = [&](const StepMessage& one) {
    return with_memory_errors(device, "for the largest step", &executor, [&] { return rank.run(one); });
  };
  with_memory_errors(device, "for the KV blocks of one sequence", &executor, [&] { generation.make_blocks(needed); });
  memory.block_bytes = executor.kv_bytes() / needed;
  memory.state_bytes = executor.state_bytes();
  ops::release_unused(device);
  ops::reset_peak(device);
  memory.before_step = ops::device_memory(device);
  run(message);
  run(after);
  memory.after_step = ops::device_memory(device);
  ops::release_unused(device);
  memory.without_graphs = memory.with_graphs = ops::device_memory(device);
  capture_graphs(rank, world, max_batch_size);
  ops::release_unused(device);
  if (generation.graphs().captured > 0) memory.with_graphs = ops::device_memory(device);
  generation.make_blocks(0);
  ops::release_unused(device);
  barrier_all_ranks(world);
  memory.without_blocks = ops::device_memory(device);
  return memory;
}

}  // namespace

WarmUpResult warm_up(Rank& rank, const RankGroupConfig& config, comm::Communicator& world, int ranks_on_device) {
  parallel::Executor& executor = rank.executor();
  parallel::GenerationExecutor& generation = rank.generation();
  const at::Device device = executor.device();
  const Plan& plan = *config.plan;
  const int64_t dp_size = std::max(1, plan.data);
  const int64_t max_batch_size =
      std::min<int64_t>(parallel::DecodeGraphs::max_captured_batch, (plan.concurrency + dp_size - 1) / dp_size);
  const MemoryBudget budget = memory_budget(measure_memory(rank, config, world, ranks_on_device, max_batch_size),
                                            tensor_memory(plan, world.rank()), world.size() == 1 ? 0 : answer_bytes);
  const int64_t wanted = budget.kv_blocks(config.kv_blocks, config.max_kv_blocks),
                local_blocks = allocate_kv_blocks(rank, wanted, budget.block_bytes, budget.max_reserved()),
                blocks = all_reduce_min(local_blocks, world);
  LOG(INFO) << "rank " << world.rank() << ": " << budget.limit << " bytes of " << device << " are usable: weights "
            << executor.weight_bytes() << ", activations of the largest step " << budget.activations << " and "
            << budget.fragmentation << " of fragmentation, CUDA graphs " << budget.graphs << "; " << budget.kv()
            << " remain for " << local_blocks << " KV blocks; every rank has memory for " << blocks;
  if (const int64_t one = blocks_per_sequence(config.model->metadata, plan.sequence_length); blocks < one) {
    throw_out_of_memory(device,
                        "for " + std::to_string(one) + " KV blocks of " + std::to_string(budget.block_bytes) +
                            " bytes, which one sequence of " + std::to_string(plan.sequence_length) +
                            " tokens needs: " + std::to_string(budget.kv()) +
                            " bytes remain beside the weights and the activations and CUDA graphs of " +
                            std::to_string(budget.step()),
                        &executor, {});
  }
  if (blocks < local_blocks) {
    generation.make_blocks(0);
    ops::release_unused(device);
    with_memory_errors(device, "for KV blocks", &executor, [&] { generation.make_blocks(blocks); });
  }
  capture_graphs(rank, world, max_batch_size);
  ops::release_unused(device);  // what the first steps of each size left on the stream of captures
  return {blocks, budget.activations, generation.graphs().captured > 0 ? budget.graphs : 0};
}

}  // namespace pm::engine
