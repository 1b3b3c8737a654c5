// SPDX-License-Identifier: Apache-2.0
// Models of full size, as sparse files: names, metadata within their bound, and exact bytes per rank, printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "planner/stages.h"
#include "tests/unit/worker/policy/full_size.h"
#include "worker/policy/resolve.h"
#include "worker/policy/roles.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

constexpr double mib = 1 << 20;

/// Sum of the local tensors that a rank would allocate; each has to be made of as many stored elements.
int64_t loaded_bytes(const Model& model, const Partition& partition, int rank) {
  int64_t bytes = 0;
  for (const Param* param : model.params()) {
    if (!param->shares.empty()) continue;
    int64_t elements = 1, stored = 0;
    const Range range = rank_range(*param, partition, rank);
    for (int64_t size : local_shape(*param, range)) elements *= size;
    for (const TensorSlice& piece : tensor_slices(*param, range)) stored += piece.rows * piece.cols;
    EXPECT_EQ(stored, elements) << param->path;
    bytes += elements * size_of(param->dtype);
  }
  return bytes;
}

/// Whether a stage reads the parameter: its layers, or what lies before the first and after the last of them.
bool read_in(const Param& param, const Model& model, const Layers& layers) {
  if (param.stack.empty())
    return layers.back().second.size() > 0 && layers.back().second.end == model.metadata.stacks.back().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Range range = layers[i].second;
    if (layers[i].first != param.stack) continue;
    if (param.layer >= 0) return param.layer >= range.begin && param.layer < range.end;
    const bool after = param.path.find(".output.") != std::string::npos;
    return range.size() > 0 && (after ? range.end == model.metadata.stacks[i].layers : range.begin == 0);
  }
  return false;
}

/// Bytes of the storages that a stage's parameters read, each once.
int64_t read_bytes(const Model& model, const Layers& layers, const Partition& partition, int rank) {
  int64_t bytes = 0;
  std::set<std::string> seen;
  for (const Param* param : model.params()) {
    if (!read_in(*param, model, layers) || !seen.insert(param->shares.empty() ? param->path : param->shares).second)
      continue;
    int64_t elements = 1;
    for (int64_t size : local_shape(*param, rank_range(*param, partition, rank))) elements *= size;
    bytes += elements * size_of(param->dtype);
  }
  return bytes;
}

/// The stretches of units that ranks hold cover each cut parameter, without gap or overlap.
void expect_cover(const Model& model, const Partition& partition) {
  for (const Param* param : model.params()) {
    if (sharding_rule(param->role).axis == Axis::None) continue;
    Range last{0, 0};
    for (int rank = 0; rank < partition.ranks(); ++rank) {
      const Range range = rank_range(*param, partition, rank);
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
  EXPECT_EQ(model.metadata.parameters, GetParam().parameters);
  EXPECT_TRUE(model.not_loaded.empty());
  const int64_t whole = make_partition(model.metadata, 1, model.metadata.dtype).weight_bytes(model.metadata, 0);
  EXPECT_EQ(whole, model.metadata.checkpoint_bytes);
  for (int ranks : {1, 2, 3, 4, 8}) {
    const Partition partition = make_partition(model.metadata, ranks, model.metadata.dtype);
    expect_cover(model, partition);
    int64_t most = 0, sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t bytes = partition.weight_bytes(model.metadata, rank);
      EXPECT_EQ(bytes, loaded_bytes(model, partition, rank)) << ranks << " ranks, rank " << rank;
      most = std::max(most, bytes);
      sum += bytes;
    }
    // what every rank holds whole is there n times: norms and row biases
    const double ratio = static_cast<double>(most) * ranks / static_cast<double>(whole);
    std::printf("%-13s n=%d  most %9.2f MiB  ideal %9.2f MiB  ratio %.4f  held twice %7.2f MiB\n",
                GetParam().name.c_str(), ranks, static_cast<double>(most) / mib,
                static_cast<double>(whole) / mib / ranks, ratio, static_cast<double>(sum - whole) / mib);
    EXPECT_LE(ratio, 1.01) << ranks << " ranks";
    if (GetParam().name == "GPT-Neo-2.7B") {
      EXPECT_LE(static_cast<double>(most) / mib, gpt_neo_targets.at(ranks)) << ranks << " ranks";
    }
  }
}

TEST_P(FullSizes, StagesHoldExactlyWhatTheirLayersRead) {
  const checkpoint::Folder folder;
  GetParam().checkpoint.write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const Model model = resolve(checkpoint);
  for (const auto& [p, t] : {std::pair{2, 1}, {3, 2}, {4, 1}, {7, 3}}) {
    int64_t most = 0;
    for (const Layers& layers : stages(model.metadata, p, t, model.metadata.dtype)) {
      const ModelMetadata metadata = stage_metadata(model.metadata, layers);
      const Partition partition = make_partition(metadata, t, model.metadata.dtype);
      for (int rank = 0; rank < t; ++rank) {
        const int64_t bytes = partition.weight_bytes(metadata, rank);
        EXPECT_EQ(bytes, read_bytes(model, layers, partition, rank)) << p << " stages of " << t << ", rank " << rank;
        most = std::max(most, bytes);
      }
    }
    std::printf("%-13s stages=%d tensor=%d  most %9.2f MiB  ideal %9.2f MiB\n", GetParam().name.c_str(), p, t,
                static_cast<double>(most) / mib, static_cast<double>(model.metadata.checkpoint_bytes) / mib / p / t);
  }
}

TEST_P(FullSizes, OnlyTheLastLinearsOfT5sFeedForwardBlocksLeaveTheRangeOfF16) {
  const checkpoint::Folder folder;
  GetParam().checkpoint.write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const Model model = resolve(checkpoint);
  for (const Param* param : model.params())
    EXPECT_EQ(param->f32_if_f16, GetParam().name == "T5-3B" && param->path.ends_with("mlp.down.weight")) << param->path;
}

TEST_P(FullSizes, FactsAreSmallAndSurviveTheirJson) {
  const checkpoint::Folder folder;
  GetParam().checkpoint.write(folder, true);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const ModelMetadata metadata = resolve(checkpoint).metadata;
  EXPECT_EQ(metadata_from_json(to_json(metadata)), metadata);
  EXPECT_LE(to_json(metadata).dump().size(), 4096u);
}

INSTANTIATE_TEST_SUITE_P(Published, FullSizes, testing::ValuesIn(full_sizes()), [](const auto& info) {
  std::string name;
  for (char c : info.param.name)
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

TEST(TinySizes, FactsTellWhoElseReadsAStorage) {
  const checkpoint::Folder folder;
  tiny_gpt2().write(folder);
  const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
  const ModelMetadata metadata = resolve(checkpoint).metadata;
  for (const Part& part : metadata.parts)
    EXPECT_EQ(part.also, part.axis == Axis::Vocab ? std::vector<Use>({{"", stack_input}}) : std::vector<Use>{})
        << name_of(part.axis) << part.first;
  EXPECT_EQ(std::count_if(metadata.parts.begin(), metadata.parts.end(),
                          [](const Part& part) { return part.first == stack_output; }),
            1);  // ln_f
}

TEST(TinySizes, EveryRankLoadsWhatThePlannerSays) {
  for (const Synthetic& synthetic : {tiny_gpt2(), tiny_bert()}) {
    const checkpoint::Folder folder;
    synthetic.write(folder);
    const auto checkpoint = checkpoint::Checkpoint::open(folder.path);
    const Model model = resolve(checkpoint);
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const Partition partition = make_partition(model.metadata, ranks, DType::F32);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(partition.weight_bytes(model.metadata, rank), loaded_bytes(model, partition, rank));
    }
  }
}

}  // namespace
}  // namespace pm::policy
