// A tiny GPT-2 whose weights are kept apart, and what they are when they are there.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/parallel/fetcher.h"

namespace pm::parallel {

inline Plan plan_of(const policy::Model& model, Strategy strategy, int ranks, int64_t buffer = 0, DType precision = DType::F32) {
  const Hardware hardware{.devices = ranks, .device_memory = int64_t{64} << 30};
  Plan plan = decide(model.facts, hardware, {.strategy = strategy, .precision = precision}).plan.value();
  if (buffer > 0) plan.gathering->buffer = buffer;
  return plan;
}

/// Numbers in place of the checkpoint's random bytes, of which some are none.
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

/// One rank of a group.
struct KeptRank {
  KeptRank(const policy::Resolved& resolved, const Plan& plan, std::shared_ptr<comm::Communicator> world, at::Device device = at::kCPU)
      : cuts(deal(resolved.model.facts, 1, plan.precision)), loader(*resolved.checkpoint, cuts, 0, plan.precision, {}, device), units(resolved.model, plan, world->rank()),
        fetcher(units, loader, plan.gathering->buffer, world) {
    units.gather_with(fetcher);
    loader.keep_with(units);
    const policy::Stack& stack = resolved.model.stacks[0];
    table = loader.weight(*stack.input.token, layers::Access::LookUp);
    positions = loader.weight(*stack.input.positions, layers::Access::LookUp);
    for (const policy::Layer& layer : stack.layers) {
      const policy::Attention& attention = layer.attention;
      const policy::Param *biases[] = {&*attention.query.bias, &*attention.key.bias, &*attention.value.bias}, *matrices[] = {&attention.query.weight, &attention.key.weight, &attention.value.weight};
      biases_of.push_back(loader.weight(biases));
      products.push_back(loader.weight(matrices));
      for (const policy::Param* one : {&attention.out.weight, &layer.mlp.up.weight, &layer.mlp.down.weight}) products.push_back(loader.weight(*one));
    }
    scores = loader.weight(resolved.model.heads[0].logits->weight);
    units.load(loader);
  }
  Places all() const { return units.of_stack(0) | units.best(); }

  Cuts cuts;
  layers::Loader loader;
  Units units;
  Fetcher fetcher;
  layers::Weight table, positions, scores;
  std::vector<layers::Weight> biases_of, products;   ///< in order of use; four products to a layer
};

/// The same matrices, held.
inline std::vector<at::Tensor> products_of(const policy::Resolved& resolved, DType precision = DType::F32) {
  const Cuts cuts = deal(resolved.model.facts, 1, precision);
  layers::Loader loader(*resolved.checkpoint, cuts, 0, precision);
  std::vector<at::Tensor> out;
  for (const policy::Layer& layer : resolved.model.stacks[0].layers) {
    const policy::Attention& attention = layer.attention;
    const policy::Param* matrices[] = {&attention.query.weight, &attention.key.weight, &attention.value.weight};
    out.push_back(loader.weight(matrices).value());
    for (const policy::Param* one : {&attention.out.weight, &layer.mlp.up.weight, &layer.mlp.down.weight}) out.push_back(loader.weight(*one).value());
  }
  return out;
}

inline at::Tensor table_of(const policy::Resolved& resolved, DType precision = DType::F32) {
  const Cuts cuts = deal(resolved.model.facts, 1, precision);
  return layers::Loader(*resolved.checkpoint, cuts, 0, precision).weight(*resolved.model.stacks[0].input.token).value();
}

/// Bit by bit: random bytes are not always numbers.
inline bool same(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace pm::parallel
