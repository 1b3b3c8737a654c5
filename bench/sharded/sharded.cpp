// SPDX-License-Identifier: Apache-2.0
// Measures steps of fully sharded ranks and compares them with the planner's model, which gets the parameters of the
// same run: read bandwidth of the checkpoint's files without page cache, all-gather bandwidth, and the time of a step
// with all weights resident. `bench_sharded MODEL SECONDS` prints a JSON line each.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "planner/strategies/layout.h"
#include "planner/weight_shards.h"
#include "worker/engine/ranks/rank_group.h"
#include "worker/policy/resolve.h"

namespace pm::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t most_sequences = 32, block = int64_t{4} << 20;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Returns the median of as many runs as fit the time, at least three.
double median_of(double budget, const std::function<void()>& work) {
  std::vector<double> times;
  for (double spent = 0; times.size() < 3 || spent < budget; spent += times.back()) times.push_back(seconds_of(work));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// Returns the bytes/s of reading the checkpoint's files once, in blocks of 4 MiB without page cache.
double file_bandwidth(const checkpoint::Checkpoint& checkpoint) {
  void* buffer = std::aligned_alloc(4096, block);
  int64_t bytes = 0;
  const double seconds = seconds_of([&] {
    for (const auto& path : checkpoint.files()) {
      const int file = ::open(path.c_str(), O_RDONLY | O_DIRECT);
      for (int64_t at = 0;;) {
        const ssize_t got = ::pread(file, buffer, block, at);
        if (got <= 0) break;
        at += got;
        bytes += got;
        if (got % 4096 != 0) break;
      }
      ::close(file);
    }
  });
  std::free(buffer);
  return static_cast<double>(bytes) / seconds;
}

/// Returns the all-gather bytes/s of each of n ranks, and the seconds of an almost empty exchange.
std::pair<double, double> gather_figures(int n, int64_t bytes, double budget) {
  const auto ranks = comm::in_process(n, std::chrono::seconds(60));
  const auto time = [&](int64_t size) {
    std::vector<int64_t> parts;
    for (int rank = 0; rank < n; ++rank) parts.push_back(flat_param_shard(size, rank, n).size());
    const int times = std::max(3, static_cast<int>(budget * 2e9 / static_cast<double>(size + 1000000)));
    std::vector<std::thread> threads;
    const double seconds = seconds_of([&] {
      for (int rank = 0; rank < n; ++rank) {
        threads.emplace_back([&, rank] {
          const at::Tensor mine = at::ones({parts[static_cast<size_t>(rank)]}, at::kByte);
          at::Tensor all = at::zeros({size}, at::kByte);
          for (int i = 0; i < times; ++i) ranks[static_cast<size_t>(rank)]->all_gatherv(mine, parts, all);
        });
      }
      for (auto& thread : threads) thread.join();
    });
    return seconds / times;
  };
  return {static_cast<double>(bytes) * (n - 1) / n / time(bytes), time(64 * n)};
}

struct Model {
  checkpoint::Checkpoint checkpoint;
  policy::Model model;
};

Plan plan_of(const Model& model, Strategy strategy, int ranks) {
  const Hardware hardware{.devices = ranks, .device_memory = int64_t{64} << 30};
  return decide(model.model.metadata, hardware,
                {.strategy = strategy, .max_sequence_length = 16, .max_concurrency = most_sequences * ranks})
      .plan.value();
}

/// Returns the seconds of a step in which the first rank has the given sequences of one token; the other ranks have
/// none.
std::vector<double> step_seconds(const Model& model, const Plan& plan, const std::vector<int64_t>& batches,
                                 double budget) {
  const auto group = engine::local_rank_group({&model.checkpoint, &model.model, &plan, most_sequences});
  std::vector<double> out;
  for (const int64_t sequences : batches) {
    engine::StepMessage message;
    for (int32_t i = 0; i < sequences; ++i)
      message.entries.push_back({.slot = i,
                                 .reset_table = true,
                                 .tokens = {1 + i},
                                 .blocks = {i},
                                 .output_kind = engine::OutputKind::Argmax});
    engine::DpRank& dp_rank = *group->dp_ranks().front();
    const auto step = [&] {
      dp_rank.send(message);
      dp_rank.take();
    };
    step();
    out.push_back(median_of(budget, step));
    dp_rank.set_idle();
  }
  return out;
}

int run(const char* folder, double budget) {
  Model model{checkpoint::Checkpoint::open(folder), {}};
  model.model = policy::resolve(model.checkpoint);
  const ModelMetadata& metadata = model.model.metadata;
  const std::vector<int64_t> batches{1, 8, most_sequences};
  const double files = file_bandwidth(model.checkpoint);
  const auto [links, latency] = gather_figures(2, shard_weights(metadata, metadata.dtype).largest_flat_param(), budget);
  const std::vector<double> there = step_seconds(model, plan_of(model, Strategy::Tensor, 1), batches, budget);
  std::cout << nlohmann::json{{"bytes", metadata.checkpoint_bytes},
                              {"fileBandwidth", files},
                              {"gatherBandwidth", links},
                              {"gatherLatency", latency}}
                   .dump()
            << std::endl;
  for (const auto& [strategy, ranks] :
       {std::pair{Strategy::Offload, 1}, {Strategy::Offload, 2}, {Strategy::Sharded, 2}}) {
    const Plan plan = plan_of(model, strategy, ranks);
    const std::vector<double> measured = step_seconds(model, plan, batches, budget);
    for (size_t i = 0; i < batches.size(); ++i) {
      Demand demand{.precision = metadata.dtype,
                    .sequence_length = 16,
                    .concurrency = batches[i] * ranks,
                    .devices_of_a_node = ranks,
                    .micro_batches = {},
                    .hardware_values = hardware_values({})};
      demand.device_memory = plan.device_memory;
      demand.hardware_values.file_bandwidth.value = files;
      demand.hardware_values.link_bandwidth.value = links;
      demand.hardware_values.link_latency.value = latency;
      demand.hardware_values.flops.value = 1e18;
      demand.hardware_values.memory_bandwidth.value = 1e18;  // the compute time is measured
      const FullyShardedLayout modelled = strategy == Strategy::Sharded
                                              ? sharded(metadata, ranks, Unit::Layer, demand)
                                              : offloaded(metadata, ranks, Unit::Layer, Residency::File, demand);
      demand.hardware_values.memory_bandwidth.value =
          static_cast<double>(metadata.checkpoint_bytes) / (there[i] * ranks);  // ranks share this machine's cores
      const FullyShardedLayout whole = strategy == Strategy::Sharded
                                           ? sharded(metadata, ranks, Unit::Layer, demand)
                                           : offloaded(metadata, ranks, Unit::Layer, Residency::File, demand);
      std::cout << nlohmann::json{{"strategy", name_of(strategy)},
                                  {"ranks", ranks},
                                  {"sequences", batches[i]},
                                  {"measured", measured[i]},
                                  {"fetched", modelled.layout.estimate.token_seconds},
                                  {"modelled", whole.layout.estimate.token_seconds},
                                  {"resident", there[i]}}
                       .dump()
                << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace pm::bench

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "bench_sharded MODEL SECONDS\n"), 2;
  return pm::bench::run(argv[1], std::atof(argv[2]));
}
