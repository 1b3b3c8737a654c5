// SPDX-License-Identifier: Apache-2.0
// Makes a rank of a tiny GPT-2 with sharded weights, and the same weights unsharded.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/parallel/weight_prefetcher.h"

namespace pm::parallel {

inline Plan plan_of(const policy::Model& model, Strategy strategy, int ranks, int64_t buffer = 0,
                    DType precision = DType::F32) {
  const Hardware hardware{.devices = ranks, .device_memory = int64_t{64} << 30};
  Plan plan = decide(model.metadata, hardware, {.strategy = strategy, .precision = precision}).plan.value();
  if (buffer > 0) plan.gathering->buffer = buffer;
  return plan;
}

/// Replaces the random bytes of the checkpoint, of which some are NaN, by finite numbers.
inline void make_finite(const policy::Resolved& resolved) {
  std::fstream file(resolved.folder.path / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header = 0;
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  file.seekg(0, std::ios::end);
  const auto begin = static_cast<int64_t>(sizeof header + header), bytes = static_cast<int64_t>(file.tellg()) - begin;
  const at::Tensor numbers = at::randn({bytes / 4});
  file.seekp(begin);
  file.write(static_cast<const char*>(numbers.const_data_ptr()), bytes / 4 * 4);
}

/// One rank of a Sharded or Offload group.
struct ShardedRank {
  ShardedRank(const policy::Resolved& resolved, const Plan& plan, std::shared_ptr<comm::Communicator> world,
              at::Device device = at::kCPU)
      : partition(make_partition(resolved.model.metadata, 1, plan.precision)),
        loader(*resolved.checkpoint, partition, 0, plan.precision, {}, device),
        units(resolved.model, plan, world->rank()),
        prefetcher(units, loader, plan.gathering->buffer, world) {
    units.gather_with(prefetcher);
    loader.shard_with(units);
    const policy::Stack& stack = resolved.model.stacks[0];
    table = loader.weight(*stack.input.token, layers::Access::LookUp);
    positions = loader.weight(*stack.input.positions, layers::Access::LookUp);
    for (const policy::Layer& layer : stack.layers) {
      const policy::Attention& attention = layer.attention;
      const policy::Param *biases[] = {&*attention.query.bias, &*attention.key.bias, &*attention.value.bias},
                          *matrices[] = {&attention.query.weight, &attention.key.weight, &attention.value.weight};
      biases_of.push_back(loader.weight(biases));
      products.push_back(loader.weight(matrices));
      const auto& mlp = std::get<policy::DenseMlp>(layer.mlp.kind);
      for (const policy::Param* one : {&attention.out.weight, &mlp.up.weight, &mlp.down.weight})
        products.push_back(loader.weight(*one));
    }
    scores = loader.weight(resolved.model.heads[0].as<policy::LogitsSpec>()->linear.weight);
    units.load(loader);
  }
  StageMask all() const { return units.stack_mask(0) | units.argmax_mask(); }

  Partition partition;
  layers::Loader loader;
  GatherUnits units;
  WeightPrefetcher prefetcher;
  layers::Weight table, positions, scores;
  std::vector<layers::Weight> biases_of, products;  ///< in order of use; four products to a layer
};

/// Returns the same matrices, unsharded.
inline std::vector<at::Tensor> products_of(const policy::Resolved& resolved, DType precision = DType::F32) {
  const Partition partition = make_partition(resolved.model.metadata, 1, precision);
  layers::Loader loader(*resolved.checkpoint, partition, 0, precision);
  std::vector<at::Tensor> out;
  for (const policy::Layer& layer : resolved.model.stacks[0].layers) {
    const policy::Attention& attention = layer.attention;
    const policy::Param* matrices[] = {&attention.query.weight, &attention.key.weight, &attention.value.weight};
    out.push_back(loader.weight(matrices).value());
    const auto& mlp = std::get<policy::DenseMlp>(layer.mlp.kind);
    for (const policy::Param* one : {&attention.out.weight, &mlp.up.weight, &mlp.down.weight})
      out.push_back(loader.weight(*one).value());
  }
  return out;
}

inline at::Tensor table_of(const policy::Resolved& resolved, DType precision = DType::F32) {
  const Partition partition = make_partition(resolved.model.metadata, 1, precision);
  return layers::Loader(*resolved.checkpoint, partition, 0, precision)
      .weight(*resolved.model.stacks[0].input.token)
      .value();
}

/// Compares bit by bit, because random bytes may be NaN.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace pm::parallel
