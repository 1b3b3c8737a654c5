// SPDX-License-Identifier: Apache-2.0
// State spaces, short convolutions and layers of one block on tiny checkpoints: sizes, units of sharding, metadata,
// refusals.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t hidden = 12, heads = 4, head_dim = 3, state = 5, taps = 4;

/// Nemotron-H in small: a state space, an MLP and an attention.
Synthetic tiny_nemotron(int64_t groups) {
  Synthetic model;
  model.config = {{"model_type", "nemotron_h"},
                  {"architectures", {"NemotronHForCausalLM"}},
                  {"hybrid_override_pattern", "M-*"},
                  {"vocab_size", 11},
                  {"hidden_size", hidden},
                  {"num_attention_heads", 2},
                  {"num_key_value_heads", 2},
                  {"head_dim", 6},
                  {"intermediate_size", 10},
                  {"mamba_num_heads", heads},
                  {"mamba_head_dim", head_dim},
                  {"n_groups", groups},
                  {"ssm_state_size", state},
                  {"conv_kernel", taps}};
  model.add("backbone.embeddings.weight", {11, hidden});
  model.add("lm_head.weight", {11, hidden});
  model.add("backbone.norm_f.weight", {hidden});
  const int64_t values = heads * head_dim, channels = values + 2 * groups * state;
  const auto at = [](int layer) { return "backbone.layers." + std::to_string(layer) + "."; };
  for (int layer = 0; layer < 3; ++layer) model.add(at(layer) + "norm.weight", {hidden});
  const std::string mixer = at(0) + "mixer.";
  model.linear(mixer + "in_proj", values + channels + heads, hidden, false);
  model.add(mixer + "conv1d.weight", {channels, 1, taps});
  model.add(mixer + "conv1d.bias", {channels});
  for (const char* name : {"A_log", "dt_bias", "D"}) model.add(mixer + name, {heads});
  model.add(mixer + "norm.weight", {values});
  model.linear(mixer + "out_proj", hidden, values, false);
  model.linear(at(1) + "mixer.up_proj", 10, hidden, false);
  model.linear(at(1) + "mixer.down_proj", hidden, 10, false);
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) model.linear(at(2) + "mixer." + name, hidden, hidden, false);
  model.linear(at(2) + "mixer.o_proj", hidden, hidden, false);
  return model;
}

const StateSpace& space(const Resolved& resolved) {
  return std::get<StateSpace>(resolved.model.stacks[0].layers[0].recurrent->kind);
}

TEST(StateSpace, AGroupIsAUnitAndItsRowsLieByParts) {
  const Resolved resolved(tiny_nemotron(2));
  const StateSpace& block = space(resolved);
  EXPECT_EQ(block.state(), (StateShape{.units = 2,
                                       .inputs = taps - 1,
                                       .channels = 2 * head_dim + 2 * state,
                                       .matrices = 2,
                                       .rows = state,
                                       .columns = head_dim,
                                       .projected = 4 * head_dim + 2 + 2 * state}));
  const auto first_rows = [&](const Param& param) { return tensor_slices(param, {1, 2}).front().row; };
  EXPECT_EQ(first_rows(block.output_gate.weight), 6);
  EXPECT_EQ(first_rows(block.value.weight), 12 + 6);
  EXPECT_EQ(first_rows(block.write.weight), 24 + state);
  EXPECT_EQ(first_rows(block.read.weight), 24 + 2 * state + state);
  EXPECT_EQ(first_rows(block.step.weight), 24 + 4 * state + 2);
  EXPECT_EQ(tensor_slices(*block.read_taps.bias, {1, 2}).front().col, 12 + 2 * state + state);  // parts of a vector
}

TEST(StateSpace, OfOneGroupHeadsAreUnitsAndEveryRankHasWhatTheyShare) {
  const Resolved resolved(tiny_nemotron(1));
  const StateSpace& block = space(resolved);
  EXPECT_EQ(block.units(), heads);
  const Partition partition = make_partition(resolved.model.metadata, 2, DType::F32);
  EXPECT_EQ(rank_range(block.value.weight, partition, 1), (Range{2, 4}));
  for (const Param* shared : {&block.write.weight, &block.read.weight, &block.write_taps.weight}) {
    EXPECT_EQ(rank_range(*shared, partition, 1), (Range{0, 1}));
    EXPECT_EQ(local_shape(*shared, {0, 1})[0], state);
  }
  EXPECT_EQ(code_bits(block.write.weight, DType::I8), 8);
  const Recurrence& recurrence = resolved.model.metadata.stacks[0].recurrence;
  EXPECT_EQ(recurrence.shared_channels, 2 * state);
  EXPECT_EQ(recurrence.shared_state, 2 * state * (taps - 1));
}

TEST(StateSpace, StepsHaveTheBoundsOfTheConfigOrNone) {
  Synthetic model = tiny_nemotron(1);
  const std::string policy =
      "extends: nemotron_h\nmodel_type: nemotron_h\nstacks:\n  decoder:\n    state_space: {most_step: \"limit\"}\n";
  EXPECT_EQ(space(Resolved(model)).least_step, 0.001);
  EXPECT_TRUE(std::isinf(space(Resolved(model, policy)).most_step));
  model.config["limit"] = {{"__float__", "Infinity"}};
  EXPECT_TRUE(std::isinf(space(Resolved(model, policy)).most_step));
  model.config["limit"] = 0.5;
  EXPECT_EQ(space(Resolved(model, policy)).most_step, 0.5);
  model.config["limit"] = "a lot";
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable, policy), HasSubstr("limit"));
}

TEST(LayersOfOneBlock, AttendOrFeedForwardAndOnlyTheFormerCacheKeys) {
  const Resolved resolved(tiny_nemotron(2));
  const std::vector<Layer>& layers = resolved.model.stacks[0].layers;
  EXPECT_TRUE(layers[0].recurrent && layers[0].has_mixer && !layers[0].has_mlp);
  EXPECT_TRUE(!layers[1].recurrent && !layers[1].has_mixer && layers[1].has_mlp);
  EXPECT_TRUE(!layers[2].recurrent && layers[2].has_mixer && !layers[2].has_mlp);
  const Recurrence& recurrence = resolved.model.metadata.stacks[0].recurrence;
  EXPECT_THAT(recurrence.layers, ElementsAre(LayerRun{0}));
  EXPECT_THAT(recurrence.attending, ElementsAre(LayerRun{2}));
}

TEST(Recurrent, IsRefusedByNameWhereSizesDoNotFit) {
  EXPECT_THAT(refusal(tiny_nemotron(3), Reason::ModelUnreadable), HasSubstr("4 heads and 3 groups of state spaces"));
  Synthetic model = tiny_nemotron(1);
  model.config["moe_latent_size"] = 4;
  EXPECT_THAT(refusal(model, Reason::UnknownArchitecture), HasSubstr("moe_latent_size"));
  model = tiny_nemotron(1);
  model.config["hybrid_override_pattern"] = "M?*";
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("layer 1 neither attention nor an MLP"));
  model = tiny_nemotron(1);
  model.tensors.erase("backbone.layers.0.mixer.D");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("mixer.D"));
}

TEST(Recurrent, APolicySaysAllOfABlockAndOneForALayer) {
  const auto with = [](const std::string& sections) {
    return refusal(tiny_nemotron(1), Reason::UnsupportedPolicy,
                   "extends: nemotron_h\nmodel_type: nemotron_h\nstacks:\n  decoder:\n" + sections);
  };
  EXPECT_THAT(with("    state_space: {skip: ~}\n"), HasSubstr("state_space needs \"skip\""));
  EXPECT_THAT(with("    short_convolution: {taps: \"3\"}\n"), HasSubstr("a layer has one recurrent block"));
}

}  // namespace
}  // namespace pm::policy
