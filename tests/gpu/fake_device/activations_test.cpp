// SPDX-License-Identifier: Apache-2.0
// Activations of 16-bit models on the fake device with emulated kernels: what a step casts between its products, how
// many bytes of activations a layer reads and writes, and which of them stay in fp32.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "tests/gpu/fake_device/decoder_tensors.h"
#include "tests/gpu/fake_device/device.h"
#include "tests/unit/worker/parallel/sharded_rank.h"
#include "worker/models/model.h"
#include "worker/ops/cuda/backend.h"

namespace pm {
namespace {

using namespace std::chrono_literals;

const at::Device device(at::DeviceType::PrivateUse1, 0);
constexpr int64_t words = 50;

/// What the operations of a step read and write.
struct Traffic {
  int64_t bytes = 0;  ///< of activations; weights and the cache's keys and values that attention reads do not count
  int casts = 0;      ///< between types
  std::vector<at::ScalarType> products, residuals;  ///< the types of results, and of the residual stream
};
thread_local Traffic traffic;

bool is_there(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().device() == device;
}

/// Counts ATen's operations on the device: copies, sums, and products, whose results are their last argument.
std::unique_ptr<at::ObserverContext> count_operation(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto inputs = call.inputs();
  if (name == "aten::copy_" && is_there(inputs[0]) && is_there(inputs[1])) {
    const at::Tensor &to = inputs[0].toTensor(), &from = inputs[1].toTensor();
    traffic.bytes += static_cast<int64_t>(to.nbytes() + from.nbytes());
    traffic.casts += to.scalar_type() != from.scalar_type();
  } else if ((name == "aten::mm" || name == "aten::addmm") && is_there(inputs.back())) {
    const at::Tensor& x = inputs[name == "aten::mm" ? 0 : 1].toTensor();
    traffic.bytes += static_cast<int64_t>(x.nbytes() + inputs.back().toTensor().nbytes());
  } else if (name == "aten::add_" && is_there(inputs[0])) {
    traffic.bytes += static_cast<int64_t>(2 * inputs[0].toTensor().nbytes() + inputs[1].toTensor().nbytes());
  }
  return nullptr;
}

/// The CUDA backend, counted. `activations` replaces the type of activations.
class CountingBackend final : public ops::Backend {
 public:
  at::ScalarType activation_type(at::ScalarType compute) const override {
    return activations.value_or(kernels_.activation_type(compute));
  }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    at::ScalarType result) const override {
    const std::lock_guard lock(launching_);
    traffic.products.push_back(result);
    const int64_t before = traffic.bytes;
    at::Tensor y = kernels_.linear(x, weight, bias, result);
    if (traffic.bytes == before) count({x, y});  // gemv()
    return y;
  }
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                      at::ScalarType result) const override {
    const std::lock_guard lock(launching_);
    return counted(kernels_.rms_norm(x, weight, eps, weight_offset, result), {x});
  }
  at::Tensor fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps,
                                double weight_offset, at::ScalarType result) const override {
    const std::lock_guard lock(launching_);
    traffic.residuals.push_back(residual.scalar_type());
    const at::Tensor given = x, y = kernels_.fused_add_rms_norm(x, residual, weight, eps, weight_offset, result);
    return counted(y, {given, residual, x});
  }
  ops::Angles rotary_angles(const at::Tensor& positions, const at::Tensor& frequencies, double factor) const override {
    const std::lock_guard lock(launching_);
    return kernels_.rotary_angles(positions, frequencies, factor);
  }
  at::Tensor rotary_write(const at::Tensor& qkv, int64_t heads, const ops::HeadNorms& norms,
                          const ops::Rotation& rotation, const at::Tensor& slots, at::Tensor& k_cache,
                          at::Tensor& v_cache) const override {
    const std::lock_guard lock(launching_);
    traffic.bytes += 2 * qkv.size(0) * k_cache.size(1) * k_cache.size(3) * k_cache.element_size();
    return counted(kernels_.rotary_write(qkv, heads, norms, rotation, slots, k_cache, v_cache), {qkv});
  }
  at::Tensor silu_and_mul(const at::Tensor& x) const override {
    const std::lock_guard lock(launching_);
    return counted(kernels_.silu_and_mul(x), {x});
  }
  ops::AttentionMetadata attention_metadata(std::span<const ops::SequenceSpan> spans, at::Device where) const override {
    return kernels_.attention_metadata(spans, where);
  }
  /// Prompts go to FlashAttention, whose queries and results have the type of the cache.
  at::Tensor paged_attention(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                             const ops::StepSequences& sequences, const ops::AttentionOptions& options) const override {
    const std::lock_guard lock(launching_);
    at::Tensor out = kernels_.paged_attention(q, k_cache, v_cache, sequences, options);
    traffic.bytes += 2 * out.numel() * (q.size(0) > 1 ? k_cache.element_size() : q.element_size());
    return out;
  }

  mutable std::optional<at::ScalarType> activations;

 private:
  static void count(std::initializer_list<at::Tensor> all) {
    for (const at::Tensor& one : all) traffic.bytes += static_cast<int64_t>(one.nbytes());
  }
  static at::Tensor counted(at::Tensor y, std::initializer_list<at::Tensor> others) {
    count(others);
    count({y});
    return y;
  }
  mutable std::mutex launching_;  ///< the emulation runs one launch at a time
  ops::cuda::CudaBackend kernels_{{.address = &fake_device::host_address,
                                   .stream = [](at::Device there) -> ops::cuda::Stream {
                                     fake_device::synchronize_current_stream(there);
                                     return nullptr;
                                   },
                                   .multiprocessors = [](at::Device) { return 4; },
                                   .compute_capability = [](at::Device) { return 90; }}};
};

const CountingBackend& backend() {
  static const CountingBackend made = {};
  [[maybe_unused]] static const bool registered = (ops::register_backend(device.type(), made), true);
  return made;
}

// the proportions of an 8B: 4,096 : 1,024 : 14,336, a sixty-fourth of each
constexpr int64_t hidden = 64, heads = 4, kv_heads = 1, head_dim = 16, ffn = 224, part_of_8b = 4096 / hidden;

policy::Synthetic small_llama(int layers) {
  policy::Synthetic s;
  s.config = {{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}},
              {"hidden_size", hidden}, {"num_attention_heads", heads},
              {"vocab_size", words},   {"num_key_value_heads", kv_heads},
              {"rope_theta", 100.0},   {"num_hidden_layers", layers},
              {"rms_norm_eps", 1e-6},  {"max_position_embeddings", 64},
              {"hidden_act", "silu"},  {"intermediate_size", ffn}};
  add_decoder_tensors(s, {hidden, heads, kv_heads, head_dim, ffn, words}, layers);
  return s;
}

struct Step {
  at::Tensor states;  ///< on the host
  Traffic traffic;
};

/// Runs the stack of one rank over a prompt of `tokens` tokens, with weights and KV cache of `type`.
Step run(const policy::Resolved& resolved, DType type, int64_t tokens, at::Device where, int rank,
         const std::shared_ptr<comm::Communicator>& comm) {
  const int layers = static_cast<int>(resolved.model.stacks[0].layers.size());
  const Partition partition = make_partition(resolved.model.metadata, comm->size(), type);
  layers::Loader loader(*resolved.checkpoint, partition, rank, type, {}, where);
  const models::Model model(resolved.model, all_layers(resolved.model.metadata), loader);
  loader.loaded();
  layers::KvCache cache(resolved.model.stacks[0], {0, layers}, loader, 4, type, 1);
  const std::vector<int32_t> blocks{1, 2};
  models::StepRows rows;
  rows.batch.positions = at::arange(tokens, at::kLong);
  rows.batch.tokens = rows.batch.positions * 5 % words;
  rows.batch.slots = rows.batch.positions + block_tokens;
  rows.batch.sequences.spans = {
      {.first = 0, .tokens = tokens, .context = 0, .keys = tokens, .key_row = 0, .blocks = blocks}};
  rows = std::move(rows).on(where);
  models::StageState state;
  traffic = {};
  const at::CallbackHandle counter =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&count_operation).needsInputs(true));
  model.step(rows, &cache, state, *comm);
  at::removeCallback(counter);
  Step step{.states = state.at(resolved.model.stacks[0].name), .traffic = traffic};
  EXPECT_EQ(step.states.scalar_type(), at::kFloat) << "heads and pipeline stages read fp32";
  step.states = step.states.cpu();
  return step;
}

Step run(const policy::Resolved& resolved, DType type, int64_t tokens, at::Device where = device) {
  return run(resolved, type, tokens, where, 0, comm::in_process(1, 20s)[0]);
}

/// A small Llama with the same finite weights for each number of layers.
struct Llama : policy::Resolved {
  explicit Llama(int layers) : Resolved(small_llama(layers)) {
    at::manual_seed(1);
    parallel::make_finite(*this);
  }
};

struct Models : testing::Test {
  Models() { backend().activations = std::nullopt; }
  ~Models() override { backend().activations = std::nullopt; }
};

TEST_F(Models, AStepOf16BitsCastsNothingBetweenItsProducts) {
  const Llama two(2), five(5);
  for (const DType type : {DType::BF16, DType::F16}) {
    for (const int64_t tokens : {1, 4, 9, 20}) {
      const Step few = run(two, type, tokens), many = run(five, type, tokens);
      EXPECT_EQ(few.traffic.casts, 2) << "the rows of the embedding to fp32, and the states where the layers begin";
      EXPECT_EQ(many.traffic.casts, few.traffic.casts) << tokens << " tokens: a layer casts nothing";
    }
  }
  EXPECT_EQ(run(two, DType::F32, 9).traffic.casts, 0);
}

TEST_F(Models, ALayerOfAn8BReadsAndWrites348KilobytesATokenInsteadOf799) {
  constexpr int64_t tokens = 20;
  const Llama two(2), three(3);
  const auto bytes_of_layer = [&] {
    const int64_t more = run(three, DType::BF16, tokens).traffic.bytes - run(two, DType::BF16, tokens).traffic.bytes;
    EXPECT_EQ(more % tokens, 0);
    return more / tokens * part_of_8b;
  };
  EXPECT_EQ(bytes_of_layer(), 348'160);
  backend().activations = at::kFloat;
  EXPECT_EQ(bytes_of_layer(), 798'720) << "with activations of fp32";
}

TEST_F(Models, ProductsAndTheResidualStreamHaveTheModelsType) {
  const Llama model(2);
  for (const auto& [type, scalar] : {std::pair{DType::BF16, at::kBFloat16}, {DType::F16, at::kHalf}}) {
    const Step step = run(model, type, 9);
    EXPECT_EQ(step.traffic.products, std::vector<at::ScalarType>(8, scalar)) << "four a layer";
    EXPECT_EQ(step.traffic.residuals, std::vector<at::ScalarType>(4, scalar));
  }
}

TEST_F(Models, SumsOverRanksAreFp32BesideAResidualOf16Bits) {
  const Llama model(2);
  const at::Tensor expected = run(model, DType::BF16, 9, at::kCPU).states;
  const auto ranks = comm::in_process(2, 20s);
  Step first, second;
  std::thread other([&] { second = run(model, DType::BF16, 9, device, 1, ranks[1]); });
  first = run(model, DType::BF16, 9, device, 0, ranks[0]);
  other.join();
  EXPECT_TRUE(at::equal(first.states, second.states));
  EXPECT_LT(((first.states - expected).abs().max() / expected.abs().max()).item<double>(), 0.03);
  for (const Step& step : {first, second}) {
    const std::vector<at::ScalarType> layer{at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat};
    std::vector<at::ScalarType> both = layer;
    both.insert(both.end(), layer.begin(), layer.end());
    EXPECT_EQ(step.traffic.products, both) << "the second and the fourth of a layer are partial sums";
    EXPECT_EQ(step.traffic.residuals, std::vector<at::ScalarType>(4, at::kBFloat16));
  }
}

TEST_F(Models, SumsThatLeaveTheRangeOfF16AreFp32) {
  Llama model(1);
  std::get<policy::GatedMlp>(model.model.stacks[0].layers[0].mlp.kind).down.weight.f32_if_f16 = true;
  const Step half = run(model, DType::F16, 9), wide = run(model, DType::BF16, 9);
  EXPECT_EQ(half.traffic.products, (std::vector{at::kHalf, at::kFloat, at::kHalf, at::kFloat}));
  EXPECT_EQ(half.traffic.residuals, std::vector<at::ScalarType>(2, at::kFloat));
  EXPECT_EQ(wide.traffic.residuals, std::vector<at::ScalarType>(2, at::kBFloat16)) << "bf16 has the range of fp32";
}

TEST_F(Models, StatesAreNearThoseOfTheCpu) {
  const Llama model(3);
  // BF16: the CPU may round operands of products too, at other places
  for (const auto& [type, tolerance] : {std::pair{DType::BF16, 0.06}, {DType::F16, 0.004}}) {
    for (const int64_t tokens : {1, 20}) {
      const at::Tensor here = run(model, type, tokens, at::kCPU).states, there = run(model, type, tokens).states;
      const double error = ((there - here).abs().max() / here.abs().max()).item<double>();
      EXPECT_LT(error, tolerance) << tokens << " tokens";
      EXPECT_GT(error, 0) << "the CPU's activations are fp32 between products";
    }
  }
}

}  // namespace
}  // namespace pm
