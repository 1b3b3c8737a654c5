// Models of full size, as sparse files: names, facts within their bound, and exact bytes per rank, printed.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/unit/worker/policy/full_size.h"
#include "worker/policy/model.h"

namespace pm::policy {
namespace {

constexpr double mib = 1 << 20;

/// Sum of the local tensors that a rank would allocate; each has to be made of as many stored elements.
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

/// The stretches of units that ranks hold cover each cut parameter, without gap or overlap.
void expect_cover(const Model& model, const Cuts& cuts) {
  for (const Param* param : model.params()) {
    if (rule_of(param->role).axis == Axis::None) continue;
    Range last{0, 0};
    for (int rank = 0; rank < cuts.ranks(); ++rank) {
      const Range range = range_of(*param, cuts, rank);
      EXPECT_EQ(range.begin, last.end) << param->path << " of rank " << rank;
      last = range;
    }
    EXPECT_EQ(last.end, param->units) << param->path;
  }
}

/// MiB per rank that were published as targets for GPT-Neo-2.7B in fp16.
const std::map<int, double> gpt_neo_targets{{1, 5058}, {2, 2540}, {3, 1725}, {4, 1280}, {8, 642}};

class FullSizes : public testing::TestWithParam<FullSize> {};

TEST_P(FullSizes, BytesPerRankAreExactAndNearTheIdeal) {
  const checkpoint::Folder folder;
  GetParam().checkpoint.write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const Model model = resolve(checkpoint);
  EXPECT_EQ(model.facts.parameters, GetParam().parameters);
  EXPECT_TRUE(model.not_loaded.empty());
  const int64_t whole = deal(model.facts, 1, model.facts.dtype).weight_bytes(model.facts, 0);
  EXPECT_EQ(whole, model.facts.checkpoint_bytes);
  for (int ranks : {1, 2, 3, 4, 8}) {
    const Cuts cuts = deal(model.facts, ranks, model.facts.dtype);
    expect_cover(model, cuts);
    int64_t most = 0, sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t bytes = cuts.weight_bytes(model.facts, rank);
      EXPECT_EQ(bytes, loaded_bytes(model, cuts, rank)) << ranks << " ranks, rank " << rank;
      most = std::max(most, bytes);
      sum += bytes;
    }
    // what every rank holds whole is there n times: norms and row biases
    const double ratio = static_cast<double>(most) * ranks / static_cast<double>(whole);
    std::printf("%-13s n=%d  most %9.2f MiB  ideal %9.2f MiB  ratio %.4f  held twice %7.2f MiB\n", GetParam().name.c_str(), ranks,
                static_cast<double>(most) / mib, static_cast<double>(whole) / mib / ranks, ratio, static_cast<double>(sum - whole) / mib);
    EXPECT_LE(ratio, 1.01) << ranks << " ranks";
    if (GetParam().name == "GPT-Neo-2.7B") {
      EXPECT_LE(static_cast<double>(most) / mib, gpt_neo_targets.at(ranks)) << ranks << " ranks";
    }
  }
}

TEST_P(FullSizes, FactsAreSmallAndSurviveTheirJson) {
  const checkpoint::Folder folder;
  GetParam().checkpoint.write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const Facts facts = resolve(checkpoint).facts;
  EXPECT_EQ(facts_from_json(to_json(facts)), facts);
  EXPECT_LE(to_json(facts).dump().size(), 4096u);
}

INSTANTIATE_TEST_SUITE_P(Published, FullSizes, testing::ValuesIn(full_sizes()), [](const auto& info) {
  std::string name;
  for (char c : info.param.name) if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

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
