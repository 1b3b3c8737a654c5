// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's attention of several queries a sequence: which kernel takes them, and that each row of the result
// is right whatever lies beside it. FlashAttention is that of the fake device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/gpu/fake_device/device.h"
#include "tests/gpu/fake_device/flash_attention.h"
#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/cuda/backend.h"

namespace pm::ops::cuda {
namespace {

using reference::SequenceShape;

const at::Device device(at::DeviceType::PrivateUse1, 0);

const CudaBackend& backend() {
  static const CudaBackend made({.address = &fake_device::host_address,
                                 .stream = [](at::Device which) -> Stream {
                                   fake_device::synchronize_current_stream(which);
                                   return nullptr;
                                 },
                                 .multiprocessors = [](at::Device) { return 4; },
                                 .compute_capability = [](at::Device) { return 90; }});
  return made;
}

double unit(at::ScalarType type) { return type == at::kFloat ? 1e-6 : type == at::kHalf ? 4.9e-4 : 3.9e-3; }

TEST(PrefillPath, IsChosenByTypeHeadSizeTermsMaskAndDevice) {
  const at::Tensor table = at::ones({4});
  const AttentionOptions plain, open{.causal = false}, window{.window = 8}, softcap{.softcap = 30},
      alibi{.alibi = {.slopes = table}}, buckets{.relative_bias = {.table = table.view({2, 2})}},
      two_sided{.causal = false, .window = 8}, sinks{.sinks = table};
  struct Row {
    const char* what;
    AttentionOptions options;
    at::ScalarType type;
    int64_t head_dim;
    bool ends_with_queries;
    int compute_capability;
    PrefillPath path;
  };
  using enum PrefillPath;
  const Row rows[]{
      {"a prompt", plain, at::kBFloat16, 128, true, 90, Flash},
      {"in fp16", plain, at::kHalf, 64, true, 80, Flash},
      {"an encoder", open, at::kHalf, 64, true, 120, Flash},
      {"a sliding window", window, at::kBFloat16, 256, true, 90, Flash},
      {"a window on both sides of the query", two_sided, at::kBFloat16, 64, true, 90, Flash},
      {"cross-attention", open, at::kBFloat16, 64, false, 90, Flash},
      {"cross-attention in a window", two_sided, at::kBFloat16, 64, false, 90, TensorCores},
      {"a causal mask over other keys", plain, at::kBFloat16, 64, false, 90, TensorCores},
      {"a soft cap", softcap, at::kBFloat16, 128, true, 90, TensorCores},
      {"ALiBi", alibi, at::kBFloat16, 128, true, 90, TensorCores},
      {"sinks", sinks, at::kBFloat16, 128, true, 90, TensorCores},
      {"a relative position bias", buckets, at::kHalf, 64, true, 90, TensorCores},
      {"the smallest heads", plain, at::kHalf, 8, true, 90, Flash},
      {"heads of no multiple of eight", plain, at::kHalf, 20, true, 90, Fp32},
      {"large heads", plain, at::kHalf, 264, true, 90, Fp32},
      {"fp32", plain, at::kFloat, 128, true, 90, Fp32},
      {"fp32 with a soft cap", softcap, at::kFloat, 128, true, 90, Fp32},
      {"a device without bf16", plain, at::kBFloat16, 128, true, 75, Fp32},
  };
  for (const Row& row : rows)
    EXPECT_EQ(prefill_path(row.options, row.type, row.head_dim, row.ends_with_queries, row.compute_capability),
              row.path)
        << row.what;
}

/// Returns the options with their tensors on the fake device.
AttentionOptions on_device(AttentionOptions options) {
  for (at::Tensor* tensor : {&options.sinks, &options.alibi.slopes, &options.relative_bias.table}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return options;
}

/// Returns a cache of `type` on the fake device that holds the rows [key rows, kv_heads, d].
at::Tensor cache_of(const reference::AttentionInputs& inputs, const at::Tensor& rows, at::ScalarType type) {
  const at::Tensor blocks = at::full({inputs.blocks, rows.size(1), block_tokens, rows.size(2)}, std::nan("")).to(type);
  const auto slots = inputs.slots.accessor<int64_t, 1>();
  for (int64_t i = 0; i < slots.size(0); ++i)
    blocks.select(0, slots[i] / block_tokens).select(1, slots[i] % block_tokens).copy_(rows[i]);
  return blocks.to(device);
}

/// Runs paged attention on the fake device with a cache of `type`. Returns the largest error against fp64.
double paged_error(int64_t heads, int64_t kv_heads, int64_t d, std::span<const SequenceShape> shapes,
                   at::ScalarType type, const AttentionOptions& options) {
  reference::AttentionInputs inputs = reference::attention_inputs(heads, kv_heads, d, shapes, type);
  inputs.q = inputs.q.to(type).to(at::kFloat);  // so that the path does not matter for the expected result
  inputs.sequences.metadata = backend().attention_metadata(inputs.sequences.spans, device);
  const at::Tensor got =
      backend().paged_attention(inputs.q.to(device), cache_of(inputs, inputs.k, type), cache_of(inputs, inputs.v, type),
                                inputs.sequences, on_device(options));
  EXPECT_EQ(got.scalar_type(), at::kFloat);
  return (got.cpu() - reference::attention(inputs, options)).abs().max().item<double>();
}

/// As paged_error, in rows. `type` is that in which the model computes.
double ragged_error(int64_t heads, int64_t kv_heads, int64_t d, std::span<const SequenceShape> shapes,
                    at::ScalarType type, AttentionOptions options) {
  reference::AttentionInputs inputs = reference::attention_inputs(heads, kv_heads, d, shapes, type);
  inputs.q = inputs.q.to(type).to(at::kFloat);
  for (SequenceSpan& span : inputs.sequences.spans) span.blocks = {};
  options.compute_type = type;
  inputs.sequences.metadata = backend().attention_metadata(inputs.sequences.spans, device);
  const at::Tensor got = backend().ragged_attention(inputs.q.to(device), inputs.k.to(device), inputs.v.to(device),
                                                    inputs.sequences, on_device(options), nullptr);
  EXPECT_EQ(got.scalar_type(), at::kFloat);
  return (got.cpu() - reference::attention(inputs, options)).abs().max().item<double>();
}

/// Runs paged attention with queries of the cache's type. Returns the largest difference from fp64.
double narrow_error(std::span<const SequenceShape> shapes, at::ScalarType type, const AttentionOptions& options) {
  reference::AttentionInputs inputs = reference::attention_inputs(4, 2, 16, shapes, type);
  const at::Tensor q = inputs.q.to(type);
  inputs.q = q.to(at::kFloat);
  inputs.sequences.metadata = backend().attention_metadata(inputs.sequences.spans, device);
  const at::Tensor got =
      backend().paged_attention(q.to(device), cache_of(inputs, inputs.k, type), cache_of(inputs, inputs.v, type),
                                inputs.sequences, on_device(options));
  EXPECT_EQ(got.scalar_type(), type);
  return (got.cpu().to(at::kDouble) - reference::attention(inputs, options)).abs().max().item<double>();
}

/// Returns the calls of FlashAttention while `f` runs.
template <typename F>
int64_t calls_of(F&& f) {
  const int64_t before = fake_device::flash_attention_calls();
  f();
  return fake_device::flash_attention_calls() - before;
}

// softmax weights and results are rounded
double tolerance(at::ScalarType type) { return 8 * unit(type); }

TEST(FlashPrefill, PromptsBesideDecodeSequencesAreOneLaunchForEachRunOfRows) {
  const SequenceShape adjacent[]{{0, 20}, {3, 5}, {0, 17}, {60, 1}, {7, 1}}, apart[]{{0, 20}, {40, 1}, {33, 5}, {7, 1}};
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(calls_of([&] { EXPECT_LT(paged_error(4, 2, 16, adjacent, type, {.scale = 0.3}), tolerance(type)); }), 1);
    EXPECT_EQ(calls_of([&] { EXPECT_LT(paged_error(4, 2, 16, apart, type, {.scale = 0.3}), tolerance(type)); }), 2);
  }
}

TEST(FlashPrefill, QueriesOf16BitsGiveResultsOf16BitsFromEveryKernel) {
  const SequenceShape shapes[]{{0, 20}, {300, 1}, {33, 5}, {7, 1}};
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(calls_of([&] { EXPECT_LT(narrow_error(shapes, type, {.scale = 0.3}), tolerance(type)); }), 2);
    const AttentionOptions capped{.scale = 0.3, .softcap = 0.5};
    EXPECT_EQ(calls_of([&] { EXPECT_LT(narrow_error(shapes, type, capped), tolerance(type)); }), 0);
  }
}

TEST(FlashPrefill, LongContextsAreGatheredInTurn) {
  const SequenceShape shapes[]{{60, 5}, {50, 5}, {40, 5}};
  EXPECT_EQ(calls_of([&] { EXPECT_LT(paged_error(2, 1, 8, shapes, at::kHalf, {}), tolerance(at::kHalf)); }), 3);
}

TEST(FlashPrefill, WindowsCountTheQueryItself) {
  const SequenceShape shapes[]{{0, 40}, {30, 9}};
  for (const int64_t window : {1, 7, 16, 100}) {
    const AttentionOptions options{.scale = 0.25, .window = window};
    EXPECT_EQ(calls_of([&] { EXPECT_LT(paged_error(2, 2, 16, shapes, at::kHalf, options), tolerance(at::kHalf)); }), 2);
  }
}

TEST(FlashPrefill, WindowsOfEncodersHaveTwoSides) {
  const SequenceShape shapes[]{{0, 40}, {0, 9}};
  for (const int64_t window : {1, 7, 16, 100}) {
    const AttentionOptions options{.scale = 0.25, .causal = false, .window = window};
    EXPECT_EQ(calls_of([&] { EXPECT_LT(ragged_error(2, 2, 16, shapes, at::kHalf, options), tolerance(at::kHalf)); }),
              1);
  }
}

TEST(FlashPrefill, CrossAttentionSeesAllKeysOfItsSource) {
  const SequenceShape shapes[]{{0, 5, 33}, {3, 9, 2}, {0, 4, 16}};
  const AttentionOptions options{.scale = 0.25, .causal = false};
  EXPECT_EQ(calls_of([&] { EXPECT_LT(paged_error(2, 1, 16, shapes, at::kHalf, options), tolerance(at::kHalf)); }), 2);
}

TEST(FlashPrefill, EncodersThatComputeIn16BitsTakeIt) {
  const SequenceShape shapes[]{{0, 20}, {0, 1}, {0, 33}}, single[]{{0, 1}, {0, 1}};
  const AttentionOptions options{.scale = 0.25, .causal = false};
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const std::span<const SequenceShape> given : {std::span<const SequenceShape>(shapes), {single}})
      EXPECT_EQ(calls_of([&] { EXPECT_LT(ragged_error(4, 2, 16, given, type, options), tolerance(type)); }), 1);
  }
  EXPECT_EQ(calls_of([&] { EXPECT_LT(ragged_error(4, 2, 16, shapes, at::kFloat, options), 1e-5); }), 0);
}

TEST(OwnPrefill, TakesTermsOfScoresThatFlashAttentionLacks) {
  const SequenceShape shapes[]{{0, 20}, {12, 1}, {33, 5}};
  for (const AttentionOptions& options :
       {AttentionOptions{.scale = 0.25, .softcap = 0.5},
        AttentionOptions{.scale = 0.25, .sinks = at::tensor({0.5f, -2.f, 3.f, 1e9f})},
        AttentionOptions{.scale = 0.25, .alibi = {.slopes = alibi_slopes(4)}},
        AttentionOptions{.scale = 0.25, .relative_bias = {.table = at::randn({8, 4}), .max_distance = 16}}}) {
    EXPECT_EQ(calls_of([&] {
                EXPECT_LT(paged_error(4, 2, 16, shapes, at::kHalf, options), tolerance(at::kHalf));
                EXPECT_LT(ragged_error(4, 2, 16, shapes, at::kHalf, options), tolerance(at::kHalf));
              }),
              0);
  }
}

TEST(OwnPrefill, TakesHeadsThatFlashAttentionDoesNot) {
  const SequenceShape shapes[]{{0, 20}, {12, 1}, {33, 5}};
  EXPECT_EQ(calls_of([&] {
              EXPECT_LT(paged_error(2, 1, 20, shapes, at::kBFloat16, {.scale = 0.2}), 1e-5) << "products are in fp32";
              EXPECT_LT(ragged_error(2, 1, 20, shapes, at::kBFloat16, {.scale = 0.2}), 1e-5);
            }),
            0);
}

/// Tensors that FlashAttention takes, and one difference that makes it refuse.
struct Call {
  at::Tensor q = at::zeros({6, 2, 16}, at::kHalf).to(device), k = at::zeros({8, 1, 16}, at::kHalf).to(device), v = k;
  at::Tensor query_starts = at::tensor({0, 6}, at::kInt).to(device),
             key_starts = at::tensor({0, 8}, at::kInt).to(device);
  int64_t max_queries = 6, max_keys = 8;
  std::optional<at::Tensor> slopes;
  void run() const {
    at::_flash_attention_forward(q, k, v, query_starts, key_starts, max_queries, max_keys, 0, true, false, 0.5,
                                 std::nullopt, std::nullopt, std::nullopt, slopes);
  }
};

TEST(FakeFlashAttention, RefusesWhatPyTorchRefuses) {
  EXPECT_NO_THROW(Call().run());
  const std::pair<const char*, std::function<void(Call&)>> changes[]{
      {"fp32", [](Call& c) { c.q = c.q.to(at::kFloat), c.k = c.v = c.k.to(at::kFloat); }},
      {"two types", [](Call& c) { c.q = c.q.to(at::kBFloat16); }},
      {"starts on the host", [](Call& c) { c.query_starts = c.query_starts.cpu(); }},
      {"starts of 64 bits", [](Call& c) { c.key_starts = c.key_starts.to(at::kLong); }},
      {"other sequences", [](Call& c) { c.key_starts = at::tensor({0, 4, 8}, at::kInt).to(device); }},
      {"heads of 12", [](Call& c) { c.q = c.q.narrow(2, 0, 12), c.k = c.v = c.k.narrow(2, 0, 12); }},
      {"heads that are not contiguous", [](Call& c) { c.q = c.q.transpose(1, 2).contiguous().transpose(1, 2); }},
      {"heads that no key head serves", [](Call& c) { c.k = c.v = at::zeros({8, 3, 16}, at::kHalf).to(device); }},
      {"a sequence above the maximum", [](Call& c) { c.max_keys = 7; }},
      {"ALiBi", [](Call& c) { c.slopes = at::zeros({2}).to(device); }},
  };
  for (const auto& [what, change] : changes) {
    Call call;
    change(call);
    EXPECT_THROW(call.run(), c10::Error) << what;
  }
}

}  // namespace
}  // namespace pm::ops::cuda
