// Models of full size, as sparse files: names, facts within their bound, and exact bytes per rank.
#include <gtest/gtest.h>

#include "tests/unit/worker/policy/synthetic.h"
#include "worker/policy/model.h"

namespace pm::policy {
namespace {

constexpr int64_t mib = 1 << 20;

/// EleutherAI/gpt-neo-2.7B in fp16.
Synthetic gpt_neo_2_7b() {
  Synthetic s;
  s.dtype = "F16";
  s.config = {{"model_type", "gpt_neo"}, {"architectures", {"GPTNeoForCausalLM"}}, {"hidden_size", 2560}, {"num_layers", 32}, {"num_heads", 20},
              {"vocab_size", 50257}, {"max_position_embeddings", 2048}, {"window_size", 256}, {"intermediate_size", nullptr},
              {"attention_types", nlohmann::json::parse(R"([[["global", "local"], 16]])")}};
  s.add("transformer.wte.weight", {50257, 2560});
  s.add("transformer.wpe.weight", {2048, 2560});
  for (int l = 0; l < 32; ++l) {
    const std::string at = "transformer.h." + std::to_string(l) + ".";
    s.norm(at + "ln_1", 2560);
    s.norm(at + "ln_2", 2560);
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) s.linear(at + "attn.attention." + name, 2560, 2560, false);
    s.linear(at + "attn.attention.out_proj", 2560, 2560);
    s.linear(at + "mlp.c_fc", 10240, 2560);
    s.linear(at + "mlp.c_proj", 2560, 10240);
  }
  s.norm("transformer.ln_f", 2560);
  return s;
}

/// Sum of the local tensors that a rank would allocate.
int64_t loaded_bytes(const Model& model, const Cuts& cuts, int rank) {
  int64_t bytes = 0;
  for (const Param* param : model.params()) {
    if (!param->shares.empty()) continue;
    int64_t elements = 1, stored = 0;
    const Range range = range_of(*param, cuts, rank);
    for (int64_t size : local_shape(*param, range)) elements *= size;
    for (const Piece& piece : pieces(*param, range)) stored += piece.rows * piece.cols;
    EXPECT_EQ(stored, elements) << param->path;
    bytes += elements * size_of(param->dtype);
  }
  return bytes;
}

TEST(FullSize, GptNeoInHalfPrecisionKeepsTheTargetsPerRank) {
  const checkpoint::Folder folder;
  gpt_neo_2_7b().write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const Model model = resolve(checkpoint);
  EXPECT_EQ(model.facts.parameters, 2651307520);
  EXPECT_EQ(model.stacks[0].layers[1].attention.window, 256);
  EXPECT_EQ(model.stacks[0].layers[2].attention.window, 0);
  EXPECT_LE(to_json(model.facts).dump().size(), 4096u);
  for (auto [ranks, bound] : {std::pair<int, int64_t>{1, 5058}, {2, 2540}, {3, 1725}, {4, 1280}, {8, 690}}) {
    const Cuts cuts = deal(model.facts, ranks, DType::F16);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(cuts.weight_bytes(model.facts, rank), loaded_bytes(model, cuts, rank)) << ranks << " ranks, rank " << rank;
      EXPECT_LE(cuts.weight_bytes(model.facts, rank), bound * mib) << ranks << " ranks, rank " << rank;
    }
  }
}

TEST(FullSize, FactsSurviveTheirJson) {
  const checkpoint::Folder folder;
  gpt_neo_2_7b().write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const Facts facts = resolve(checkpoint).facts;
  EXPECT_EQ(facts_from_json(to_json(facts)), facts);
}

TEST(TinySizes, EveryRankLoadsWhatThePlannerSays) {
  for (const Synthetic& synthetic : {tiny_gpt2(), tiny_bert()}) {
    const checkpoint::Folder folder;
    synthetic.write(folder);
    const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
    const Model model = resolve(checkpoint);
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const Cuts cuts = deal(model.facts, ranks, DType::F32);
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(cuts.weight_bytes(model.facts, rank), loaded_bytes(model, cuts, rank));
    }
  }
}

}  // namespace
}  // namespace pm::policy
