// SPDX-License-Identifier: Apache-2.0
// The operations that a step of a model calls on a device, counted on the fake one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/gpu/fake_device/decoder_tensors.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/unit/worker/parallel/sharded_rank.h"
#include "worker/models/model.h"
#include "worker/ops/backend.h"

namespace pm {
namespace {

using namespace std::chrono_literals;

const at::Device device(at::DeviceType::PrivateUse1, 0);
constexpr int64_t hidden = 16, heads = 4, kv_heads = 2, head_dim = 6, ffn = 24, words = 50;
constexpr int layers = 5;

/// ATen's operations, and how often layers called those that rotate.
class CountingBackend final : public ops::Backend {
 public:
  ops::Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override {
    ++angles;
    return Backend::rotary_angles(positions, frequencies, factor);
  }
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t query_heads, const ops::HeadNorms& norms,
                          const ops::Rotation& rotation, const at::Tensor& slots, at::Tensor& k_cache,
                          at::Tensor& v_cache) const override {
    ++writes;
    is_inside = true;
    const at::Tensor queries = Backend::rotary_write(qkv, query_heads, norms, rotation, slots, k_cache, v_cache);
    is_inside = false;
    return queries;
  }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                      at::ScalarType result) const override {
    norms += !is_inside && x.size(-1) == head_dim;
    return Backend::rms_norm(x, weight, eps, weight_offset, result);
  }
  at::Tensor rotate(const at::Tensor& x, const ops::Angles& of, bool is_neox) const override {
    rotations += !is_inside;
    return Backend::rotate(x, of, is_neox);
  }
  mutable int angles = 0, writes = 0, norms = 0, rotations = 0;
  mutable bool is_inside = false;  ///< rotary_write, whose default calls other operations
};

const CountingBackend& backend() {
  static const CountingBackend made = {};
  [[maybe_unused]] static const bool registered = (ops::register_backend(device.type(), made), true);
  return made;
}

policy::Synthetic tiny_qwen3() {
  policy::Synthetic s;
  s.config = {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}},
              {"hidden_size", hidden}, {"num_attention_heads", heads},
              {"head_dim", head_dim},  {"num_key_value_heads", kv_heads},
              {"vocab_size", words},   {"num_hidden_layers", layers},
              {"rope_theta", 100.0},   {"intermediate_size", ffn},
              {"rms_norm_eps", 1e-6},  {"max_position_embeddings", 64}};
  add_decoder_tensors(s, {hidden, heads, kv_heads, head_dim, ffn, words}, layers);
  for (int l = 0; l < layers; ++l)
    for (const char* norm : {"q_norm", "k_norm"})
      s.add("model.layers." + std::to_string(l) + ".self_attn." + norm + ".weight", {head_dim});
  return s;
}

/// A Qwen3 whose second and fourth layers rotate by other frequencies, as local layers do.
struct Steps : testing::Test {
  Steps() {
    backend();
    parallel::make_finite(resolved);
    for (const size_t local : {1, 3}) resolved.model.stacks[0].layers[local].attention.rotary->theta = 30;
  }

  /// Returns the states of two steps over a cache: a prompt of seven tokens, then one more token.
  std::vector<at::Tensor> states(at::Device where) const {
    const Partition partition = make_partition(resolved.model.metadata, 1, DType::F32);
    layers::Loader loader(*resolved.checkpoint, partition, 0, DType::F32, {}, where);
    const models::Model model(resolved.model, all_layers(resolved.model.metadata), loader);
    loader.loaded();
    layers::KvCache cache(resolved.model.stacks[0], {0, layers}, loader, 2, DType::F32, 1);
    const std::vector<int32_t> blocks{1};
    std::vector<at::Tensor> all;
    for (const auto& [context, tokens] : {std::pair<int64_t, int64_t>{0, 7}, {7, 1}}) {
      models::StepRows rows;
      rows.batch.positions = at::arange(context, context + tokens, at::kLong);
      rows.batch.tokens = rows.batch.positions * 5 % words;
      rows.batch.slots = rows.batch.positions + block_tokens;
      rows.batch.sequences.spans = {
          {.first = 0, .tokens = tokens, .context = context, .keys = context + tokens, .key_row = 0, .blocks = blocks}};
      rows = std::move(rows).on(where);
      models::StageState state;
      model.step(rows, &cache, state, *comm::in_process(1, 20s)[0]);
      all.push_back(state.at(resolved.model.stacks[0].name).cpu());
    }
    return all;
  }

  policy::Resolved resolved{tiny_qwen3()};
};

TEST_F(Steps, RotaryAnglesAreMadeOnceAStepForAllLayersThatShareThem) {
  backend().angles = 0;
  states(device);
  EXPECT_EQ(backend().angles, 2 * 2) << "two steps, two kinds of layers";
}

TEST_F(Steps, HeadsAreNormedRotatedAndWrittenByOneOperationALayer) {
  backend().writes = backend().norms = backend().rotations = 0;
  states(device);
  EXPECT_EQ(backend().writes, 2 * layers) << "two steps";
  EXPECT_EQ(backend().norms, 0);
  EXPECT_EQ(backend().rotations, 0);
}

TEST_F(Steps, StatesAreThoseOfTheCpu) {
  const std::vector<at::Tensor> here = states(at::kCPU), there = states(device);
  for (size_t step = 0; step < here.size(); ++step)
    EXPECT_TRUE(at::allclose(there[step], here[step], 1e-4, 1e-4)) << step;
}

TEST_F(Steps, LayersThatRotateOtherwiseSayOtherwise) {
  const std::vector<at::Tensor> local = states(at::kCPU);
  for (policy::Layer& layer : resolved.model.stacks[0].layers) layer.attention.rotary->theta = 100;
  EXPECT_FALSE(at::allclose(states(at::kCPU)[1], local[1], 1e-3, 1e-3));
}

}  // namespace
}  // namespace pm
