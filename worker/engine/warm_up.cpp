// See warm_up.h.
#include "worker/engine/warm_up.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "planner/memory.h"
#include "planner/strategies/layout.h"
#include "worker/engine/device.h"
#include "worker/ops/device_memory.h"
#include "worker/parallel/decode_graphs.h"
#include "worker/base/log.h"

namespace pm::engine {

namespace {

constexpr int64_t most_scores = int64_t{1} << 26;    ///< of one answer to a pass, as the server has it
/// Of a pass's states and attention weights, which are handed out and put together: what one answer holds at most, twice; left free where the blocks that the plan promised leave so much. A group of
/// one rank leaves none: there a pass without room ends alone.
constexpr int64_t answer_bytes = 2 * most_scores * float_bytes;

int64_t blocks_of(int64_t tokens) { return (tokens + block_tokens - 1) / block_tokens; }

bool reads_source(const policy::Model& model) { return models::Model::generator(model).layers[0].cross.has_value(); }

/// The least of all ranks' numbers, which go as tensors of the processor: no communicator of devices is made for them.
int64_t least_of_all(int64_t mine, comm::Communicator& world) {
  at::Tensor number = at::full({1}, mine, at::kLong);
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

/// Also a barrier: what ranks that share a device measure after it is measured when all of them have come so far.
void wait_for_all(comm::Communicator& world) {
  if (world.size() > 1) least_of_all(0, world);
}

/// Runs steps of one token each, the largest batch first, so that all ranks record them in one order and a smaller one finds the memory of a larger.
void record_steps(Rank& rank, comm::Communicator& world, int64_t most) {
  int64_t last = 0;
  for (int64_t sequences = most; sequences > 0; --sequences) {
    if (parallel::DecodeGraphs::places_for(sequences) == last) continue;
    last = parallel::DecodeGraphs::places_for(sequences);
    const int64_t mine = rank.executor().bucket(sequences), places = world.size() > 1 ? least_of_all(mine, world) : mine;
    if (places == 0) return;   // for one rank at least
    StepMessage message, after;
    message.bucket = static_cast<int32_t>(places);
    for (int32_t slot = 0; slot < sequences; ++slot) {
      message.entries.push_back({.slot = slot, .anew = true, .tokens = {0}, .blocks = {0}, .want = Want::Best});
      after.freed.push_back(slot);
    }
    rank.run(message);
    rank.run(after);
  }
}

/// Makes `wanted` blocks, or as many fewer as it takes for the allocator to have no more than `most` of the device: it rounds up what each layer's are in.
int64_t made_blocks(parallel::Executor& executor, int64_t wanted, int64_t a_block, int64_t most) {
  const at::Device device = executor.device();
  for (int64_t blocks = wanted; blocks > 0;) {
    int64_t over = 0;
    try {
      executor.make_blocks(blocks);
      over = ops::device_memory(device).reserved - most;
      if (over <= 0 || a_block == 0) return blocks;
    } catch (const c10::OutOfMemoryError&) {
      over = a_block * (1 + blocks / 64);
    }
    executor.make_blocks(0);
    ops::release_unused(device);
    blocks -= (over + a_block - 1) / a_block;
  }
  return 0;
}

}  // namespace

StepMessage largest_step(const policy::Model& model, const Plan& plan, int64_t blocks, int64_t& needed) {
  const int64_t length = plan.sequence_length, source = reads_source(model) ? length : 0;
  const int64_t longest = blocks_of(length) + blocks_of(source);
  if (blocks < longest) throw std::invalid_argument(std::to_string(blocks) + " KV blocks, and one sequence of " + std::to_string(length) + " tokens takes " + std::to_string(longest));
  const int64_t tokens = std::min(step_tokens, length), lanes = std::max(1, plan.data);
  const int64_t others = std::max<int64_t>(0, std::min({(plan.concurrency + lanes - 1) / lanes - 1, tokens - 1, blocks - longest}));
  int32_t next = 0;
  const auto take = [&](int64_t count) {
    std::vector<int32_t> taken;
    for (int64_t i = 0; i < count; ++i) taken.push_back(next++);
    return taken;
  };
  StepMessage message;
  StepEntry& chunk = message.entries.emplace_back();
  const int64_t of_chunk = tokens - others;
  chunk = {.slot = 0, .anew = true, .context = length - of_chunk, .tokens = std::vector<int32_t>(static_cast<size_t>(of_chunk)), .blocks = take(blocks_of(length)), .want = Want::Scores};
  if (source > 0) {
    chunk.source = std::vector<int32_t>(static_cast<size_t>(source));
    chunk.source_blocks = take(blocks_of(source));
    chunk.source_tokens = source;
  }
  for (int64_t other = 1; other <= others; ++other) {
    StepEntry entry{.slot = static_cast<int32_t>(other), .anew = true, .context = 0, .tokens = {0}, .blocks = take(1), .want = Want::Scores};
    if (source > 0) entry.source_blocks = chunk.source_blocks, entry.source_tokens = source;
    message.entries.push_back(std::move(entry));
  }
  const int64_t row = std::clamp<int64_t>(most_scores / std::max<int64_t>(1, models::Model::generator(model).vocab), 1, length);
  message.forward = ForwardJob{{{{"input_ids", {{1, row}, std::vector<int64_t>(static_cast<size_t>(row))}}}}, false, false, {}};
  needed = next;
  return message;
}

Warmed warm_up(Rank& rank, const GroupModel& group, comm::Communicator& world, int ranks_of_device) {
  parallel::Executor& executor = rank.executor();
  const at::Device device = executor.device();
  int64_t needed = 0;
  const StepMessage message = largest_step(*group.model, *group.plan, group.kv_blocks, needed);
  const auto run = [&](const StepMessage& one) { return with_memory_errors(device, "for the largest step", &executor, [&] { return rank.run(one); }); };
  with_memory_errors(device, "for the KV blocks of one sequence", &executor, [&] { executor.make_blocks(needed); });
  const int64_t a_block = executor.kv_bytes() / needed;
  ops::release_unused(device);
  ops::reset_peak(device);
  const ops::DeviceMemory before = ops::device_memory(device);
  run(message);
  StepMessage after;
  for (const StepEntry& entry : message.entries) after.freed.push_back(entry.slot);
  run(after);
  const ops::DeviceMemory most = ops::device_memory(device);
  const int64_t activations = most.peak_allocated - before.allocated, spare = std::max<int64_t>(0, most.peak_reserved - most.peak_allocated);
  const int64_t batch = std::min<int64_t>(parallel::DecodeGraphs::most_places, (group.plan->concurrency + std::max(1, group.plan->data) - 1) / std::max(1, group.plan->data));
  ops::release_unused(device);
  const ops::DeviceMemory plain = ops::device_memory(device);
  record_steps(rank, world, batch);
  const auto held_more = [&](const ops::DeviceMemory& now) {   // in the allocator, whose memory for graphs serves nothing else, and beside it where nobody else is there
    return std::max<int64_t>(0, std::max(now.allocated - plain.allocated, now.reserved - plain.reserved)) + (ranks_of_device == 1 ? std::max<int64_t>(0, now.others() - plain.others()) : 0);
  };
  ops::release_unused(device);
  const int64_t graphs = executor.graphs().recorded > 0 ? held_more(ops::device_memory(device)) : 0;
  executor.make_blocks(0);
  ops::release_unused(device);
  wait_for_all(world);
  const ops::DeviceMemory now = ops::device_memory(device);
  const Memory& predicted = group.plan->ranks.at(static_cast<size_t>(world.rank())).predicted;
  const int64_t allowed = std::min(now.reserved + now.free / ranks_of_device, group.plan->device_memory - predicted.runtime - predicted.communicator);
  const int64_t left = std::max<int64_t>(0, allowed - now.allocated - activations - spare - graphs);
  const auto blocks_in = [&](int64_t bytes) { return a_block > 0 ? std::min(group.most_blocks, std::max<int64_t>(0, bytes) / a_block) : group.most_blocks; };
  const int64_t wanted = world.size() == 1 ? blocks_in(left) : std::max(blocks_in(left - answer_bytes), std::min(group.kv_blocks, blocks_in(left)));
  const int64_t mine = made_blocks(executor, wanted, a_block, allowed - activations - spare - graphs), blocks = least_of_all(mine, world);
  LOG(INFO) << "rank " << world.rank() << ": of " << allowed << " bytes of " << device << " weights hold " << executor.weight_bytes() << ", the largest step " << activations << " and " << spare
            << " of spare memory, recorded steps " << graphs << "; " << left << " are left for " << mine << " KV blocks, all ranks have room for " << blocks;
  if (const int64_t one = blocks_per_sequence(group.model->facts, group.plan->sequence_length); blocks < one) {
    refuse_for_memory(device, "for " + std::to_string(one) + " KV blocks of " + std::to_string(a_block) + " bytes, which one sequence of " + std::to_string(group.plan->sequence_length) +
                                  " tokens takes: " + std::to_string(left) + " bytes are left beside weights and the largest step's and recorded ones' " + std::to_string(activations + spare + graphs), &executor, {});
  }
  if (blocks < mine) {
    executor.make_blocks(0);
    ops::release_unused(device);
    with_memory_errors(device, "for KV blocks", &executor, [&] { executor.make_blocks(blocks); });
  }
  record_steps(rank, world, batch);
  return {blocks, activations, executor.graphs().recorded > 0 ? graphs : 0};
}

}  // namespace pm::engine
