// SPDX-License-Identifier: Apache-2.0
// Rows of a step take the head or the table of their own adapter, cut over ranks as the base model's.
#include "worker/layers/adapters/saved_site.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/layers/adapters/adapter_slots.h"

namespace pm::layers {
namespace {

constexpr int64_t words = 101, width = 20;

/// The rank of a GPT-2 whose adapters may have a head and a table, two of three slots.
struct Ranks {
  policy::Resolved gpt2{policy::tiny_gpt2()};
  Partition partition;
  Loader loader;
  AdapterSlots slots{gpt2.model,
                     {.slots = 3, .rank = 1, .modules = {}, .saving_slots = 2, .saved = {"lm_head", "transformer.wte"}},
                     at::kCPU};
  std::shared_ptr<const SavedSite> head, table;
  explicit Ranks(int ranks = 1, int rank = 0)
      : partition(make_partition(gpt2.model.metadata, ranks, DType::F32)),
        loader(*gpt2.checkpoint, partition, rank, DType::F32) {
    const policy::SavedTargets targets = policy::saved_targets(gpt2.model);
    head = slots.saved_site(*targets.at("lm_head").weight, loader);
    table = slots.saved_site(*targets.at("transformer.wte").weight, loader);
  }
  Range own() const { return loader.range(*policy::saved_targets(gpt2.model).at("lm_head").weight); }
  /// Loads what adapter `slot` has, in two blocks.
  void load(int32_t slot, const std::string& module) {
    const at::Tensor all = matrix(slot);
    for (const auto& [first, count] : {std::pair{0, 60}, {60, 41}}) {
      const at::Tensor rows = all.narrow(0, first, count).contiguous();
      const float* values = rows.const_data_ptr<float>();
      slots.load(slot, {{module + ".weight@" + std::to_string(first),
                         {{count, width}, std::vector<float>(values, values + rows.numel())}}});
    }
  }
  static at::Tensor matrix(int32_t slot) { return at::arange(words * width).view({words, width}) / 100 + slot; }
};

const std::vector<int32_t> mixed{0, 1, 3, 2, 1, 1};  // the slot of each row; 3 has no memory for modules

at::Tensor base_of(int64_t rows, int64_t columns) { return at::full({rows, columns}, -7.0f); }

TEST(SavedSite, RowsTakeTheHeadOfTheirAdapterOrTheBases) {
  for (const int ranks : {1, 2, 3}) {
    for (int rank = 0; rank < ranks; ++rank) {
      Ranks one(ranks, rank);
      one.load(1, "lm_head"), one.load(2, "lm_head");
      one.slots.select(mixed);
      const Range own = one.own();
      const at::Tensor x = at::arange(6 * width).view({6, width}).to(at::kFloat) / 10;
      const at::Tensor y = one.head->linear(x, at::kFloat, [&] { return base_of(6, own.size()); });
      for (int64_t row = 0; row < 6; ++row) {
        const int32_t slot = mixed[static_cast<size_t>(row)];
        const at::Tensor wanted = slot == 0 || slot == 3
                                      ? base_of(1, own.size())[0]
                                      : at::mv(Ranks::matrix(slot).narrow(0, own.begin, own.size()), x[row]);
        EXPECT_TRUE(at::allclose(y[row], wanted, 1e-5)) << "row " << row << " of rank " << rank << " of " << ranks;
      }
    }
  }
}

TEST(SavedSite, RanksAddUpTheRowsOfATable) {
  const at::Tensor ids = at::tensor({0, 100, 33, 34, 67, 50}, at::kLong);
  at::Tensor sum = at::zeros({6, width});
  for (int rank = 0; rank < 3; ++rank) {
    Ranks one(3, rank);
    one.load(1, "transformer.wte"), one.load(2, "transformer.wte");
    one.slots.select(mixed);
    sum += one.table->look_up(ids, [&] { return base_of(6, width); });
  }
  for (int64_t row = 0; row < 6; ++row) {
    const int32_t slot = mixed[static_cast<size_t>(row)];
    const at::Tensor wanted =
        slot == 0 || slot == 3 ? 3 * base_of(1, width)[0] : Ranks::matrix(slot)[ids[row].item<int64_t>()];
    EXPECT_TRUE(at::equal(sum[row], wanted)) << "row " << row;
  }
}

TEST(SavedSite, TheBaseIsNotComputedWhereNoRowTakesIt) {
  Ranks one;
  one.load(1, "lm_head"), one.load(2, "lm_head");
  const at::Tensor x = at::ones({3, width});
  for (const std::vector<int32_t>& slots : {std::vector<int32_t>{2, 2, 2}, {1, 2, 1}}) {
    one.slots.select(slots);
    const at::Tensor y = one.head->linear(x, at::kFloat, [&]() -> at::Tensor { throw std::logic_error("base"); });
    for (int64_t row = 0; row < 3; ++row) {
      const at::Tensor own = Ranks::matrix(slots[static_cast<size_t>(row)]);
      EXPECT_TRUE(at::allclose(y[row], at::mv(own, x[row]), 1e-5)) << row;
    }
  }
}

TEST(SavedSite, ASlotIsEmptyAgainForItsNextAdapter) {
  Ranks one;
  one.load(1, "lm_head");
  one.slots.load(1, {{"transformer.h.0.attn.c_attn.a", {{1, 20}, std::vector<float>(20)}},
                     {"transformer.h.0.attn.c_attn.b", {{60, 1}, std::vector<float>(60)}}});
  one.slots.select_all(1);
  const at::Tensor y = one.head->linear(at::ones({2, width}), at::kFloat, [] { return base_of(2, words); });
  EXPECT_TRUE(at::equal(y, base_of(2, words)));
}

TEST(SavedSite, OnlySavingSlotsHaveMemory) {
  Ranks one;
  EXPECT_THROW(one.load(3, "lm_head"), std::logic_error);
  EXPECT_THROW(one.load(1, "score"), std::logic_error);
}

TEST(SavedSite, OtherLinearsHaveNone) {
  Ranks one;
  EXPECT_EQ(one.slots.saved_site(one.gpt2.param("decoder.layers.0.attn.out.weight"), one.loader), nullptr);
  AdapterSlots none(one.gpt2.model, {.slots = 3, .rank = 1}, at::kCPU);
  EXPECT_EQ(none.saved_site(*policy::saved_targets(one.gpt2.model).at("lm_head").weight, one.loader), nullptr);
  EXPECT_EQ(none.bytes(), 0);
}

}  // namespace
}  // namespace pm::layers
