// SPDX-License-Identifier: Apache-2.0
// Latent attention gives a sequence the same results whether its keys are expanded from latents or its queries are
// absorbed: at once or token by token, in chunks, beside other sequences, in blocks of any order, on several ranks.
#include "worker/layers/patterns/latent_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "planner/partition.h"
#include "tests/unit/worker/policy/synthetic.h"
#include "worker/layers/rotary.h"
#include "worker/policy/resolve.h"

namespace pm::layers {
namespace {

constexpr int64_t hidden = 12, heads = 3, nope = 4, rope = 2, values = 5, rank = 7, tokens = 37, blocks = 6;

/// A layer of DeepSeek-V3 in small.
class Latents : public testing::Test {
 protected:
  Latents() {
    policy::Synthetic names;
    const std::string at = "layers.0.", self = at + "self_attn.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      names.add(at + norm + std::string(".weight"), {hidden});
    names.add("embed_tokens.weight", {11, hidden});
    names.add("norm.weight", {hidden});
    names.linear(self + "q_proj", heads * (nope + rope), hidden, false);
    names.linear(self + "kv_a_proj_with_mqa", rank + rope, hidden, false);
    names.add(self + "kv_a_layernorm.weight", {rank});
    names.linear(self + "kv_b_proj", heads * (nope + values), rank, false);
    names.linear(self + "o_proj", hidden, heads * values, false);
    names.linear(at + "mlp.gate_proj", 8, hidden, false);
    names.linear(at + "mlp.up_proj", 8, hidden, false);
    names.linear(at + "mlp.down_proj", hidden, 8, false);
    write(names);
    checkpoint_.emplace(checkpoint::Checkpoint::open(folder_.path));
    model_ = policy::resolve(*checkpoint_);
  }

  void write(const policy::Synthetic& names) const {
    const nlohmann::json config{{"model_type", "deepseek_v3"},
                                {"architectures", {"DeepseekV3Model"}},
                                {"vocab_size", 11},
                                {"hidden_size", hidden},
                                {"num_hidden_layers", 1},
                                {"num_attention_heads", heads},
                                {"intermediate_size", 8},
                                {"first_k_dense_replace", 1},
                                {"q_lora_rank", nlohmann::json()},
                                {"kv_lora_rank", rank},
                                {"qk_nope_head_dim", nope},
                                {"qk_rope_head_dim", rope},
                                {"v_head_dim", values},
                                {"rope_theta", 100}};
    folder_.write("config.json", config.dump());
    nlohmann::json header = nlohmann::json::object();
    std::vector<float> data;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const auto& [name, tensor] : names.tensors) {
      const size_t begin = 4 * data.size();
      int64_t count = 1;
      for (const int64_t size : tensor.shape) count *= size;
      for (int64_t i = 0; i < count; ++i) data.push_back(0.6f * normal(random));
      header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, 4 * data.size()}}};
    }
    std::string bytes(4 * data.size(), '\0');
    std::memcpy(bytes.data(), data.data(), bytes.size());
    folder_.write_tensors("model.safetensors", header.dump(), bytes);
  }

  const policy::Attention& attention() const { return model_.stacks[0].layers[0].attention; }

  /// A rank's layer, with what its loader reads from.
  struct Rank {
    Partition partition;
    Loader loader;
    LatentAttention layer;
    Rank(const Latents& test, int ranks, int number)
        : partition(make_partition(test.model_.metadata, ranks, DType::F32)),
          loader(*test.checkpoint_, partition, number, DType::F32),
          layer(test.attention(), loader) {}
  };

  /// Runs rows [from, to) of the sequence, which has earlier ones in the cache.
  at::Tensor run(const LatentAttention& layer, at::Tensor* cache, int64_t from, int64_t to) const {
    Batch batch;
    batch.positions = at::arange(from, to, at::kLong);
    batch.sequences.spans = {
        {.first = 0, .tokens = to - from, .context = from, .keys = to, .key_row = 0, .blocks = table_}};
    batch.slots = slots(from, to);
    const Rotary rotary(*attention().rotary);
    return layer(x_.narrow(0, from, to - from), batch, rotary.rotation(batch.positions), cache, *alone_[0]);
  }

  at::Tensor slots(int64_t from, int64_t to) const {
    std::vector<int64_t> places;
    for (int64_t token = from; token < to; ++token)
      places.push_back(table_[static_cast<size_t>(token / block_tokens)] * block_tokens + token % block_tokens);
    return at::tensor(places, at::kLong);
  }

  static at::Tensor empty_cache() { return at::full({blocks, 1, block_tokens, rank + rope}, std::nan("")); }

  checkpoint::Folder folder_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  policy::Model model_;
  std::vector<std::shared_ptr<comm::Communicator>> alone_ = comm::in_process(1, std::chrono::seconds(60));
  at::Tensor x_ = [] {
    at::manual_seed(3);
    return at::randn({tokens, hidden});
  }();
  std::vector<int32_t> table_{4, 1, 3};
};

void expect_close(const at::Tensor& found, const at::Tensor& wanted) {
  EXPECT_LT((found - wanted).abs().max().item<double>(), 2e-5);
}

TEST_F(Latents, AreExpandedForAPromptAndAbsorbedForOneToken) {
  const Rank one(*this, 1, 0);
  const at::Tensor whole = run(one.layer, nullptr, 0, tokens);
  EXPECT_GT(whole.std().item<double>(), 0.1);
  at::Tensor cache = empty_cache();
  expect_close(run(one.layer, &cache, 0, tokens), whole);
  cache = empty_cache();
  for (int64_t token = 0; token < tokens; ++token)
    expect_close(run(one.layer, &cache, token, token + 1), whole.narrow(0, token, 1));
}

TEST_F(Latents, AreTheSameInChunksOfAnyLength) {
  const Rank one(*this, 1, 0);
  const at::Tensor whole = run(one.layer, nullptr, 0, tokens);
  for (const int64_t chunk : {2, 5, 16, 20}) {
    at::Tensor cache = empty_cache();
    for (int64_t from = 0; from < tokens; from += chunk) {
      const int64_t to = std::min(tokens, from + chunk);
      expect_close(run(one.layer, &cache, from, to), whole.narrow(0, from, to - from));
    }
  }
}

TEST_F(Latents, OfSequencesInOneStepAreApart) {
  const Rank one(*this, 1, 0);
  const at::Tensor whole = run(one.layer, nullptr, 0, tokens);
  at::Tensor cache = empty_cache();
  run(one.layer, &cache, 0, tokens - 1);
  // the last token of the sequence, and a second sequence of the first ten tokens in a block of its own
  const std::vector<int32_t> other{0};
  Batch batch;
  batch.positions = at::cat({at::arange(tokens - 1, tokens, at::kLong), at::arange(0, 10, at::kLong)});
  batch.sequences.spans = {
      {.first = 0, .tokens = 1, .context = tokens - 1, .keys = tokens, .key_row = 0, .blocks = table_},
      {.first = 1, .tokens = 10, .context = 0, .keys = 10, .key_row = 1, .blocks = other}};
  batch.slots = at::cat({slots(tokens - 1, tokens), at::arange(0, 10, at::kLong)});
  const at::Tensor x = at::cat({x_.narrow(0, tokens - 1, 1), x_.narrow(0, 0, 10)});
  const Rotary rotary(*attention().rotary);
  const ops::Rotation rotation = rotary.rotation(batch.positions);
  const at::Tensor both = one.layer(x, batch, rotation, &cache, *alone_[0]);
  expect_close(both.narrow(0, 0, 1), whole.narrow(0, tokens - 1, 1));
  expect_close(both.narrow(0, 1, 10), whole.narrow(0, 0, 10));
}

TEST_F(Latents, OfEachRankAreThoseOfItsHeads) {
  const Rank one(*this, 1, 0);
  const at::Tensor whole = run(one.layer, nullptr, 0, tokens);
  std::vector<at::Tensor> parts;
  for (int number = 0; number < 2; ++number) {
    const Rank part(*this, 2, number);
    at::Tensor cache = empty_cache();
    parts.push_back(run(part.layer, &cache, 0, tokens));
  }
  EXPECT_EQ(parts[0].size(1), 2 * values);
  EXPECT_EQ(parts[1].size(1), values);
  expect_close(at::cat(parts, 1), whole);
}

}  // namespace
}  // namespace pm::layers
