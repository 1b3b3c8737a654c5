// SPDX-License-Identifier: Apache-2.0
// aten::_flash_attention_forward for ragged batches, which PyTorch has for CUDA only. It refuses what PyTorch 2.11.0
// refuses on a GPU of sm_80 or later (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: mha_varlen_fwd),
// also what its wheels are built without: ALiBi. Products and sums are in fp32; the softmax weights before their
// division and the results are rounded to the type of the tensors, as there.
#include "tests/gpu/fake_device/flash_attention.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <atomic>
#include <limits>
#include <tuple>

#include "tests/gpu/fake_device/device.h"

namespace pm::fake_device {

namespace {

std::atomic<int64_t> calls{0};

void check_starts(const at::Tensor& starts, const at::Tensor& other, const char* name) {
  TORCH_CHECK(starts.scalar_type() == at::kInt, name, " is ", starts.scalar_type(), ", not int32");
  TORCH_CHECK(starts.device().type() == at::DeviceType::PrivateUse1, name, " is on ", starts.device());
  TORCH_CHECK(starts.is_contiguous(), name, " is not contiguous");
  TORCH_CHECK(starts.dim() == 1 && starts.sizes() == other.sizes(), name, " has the shape ", starts.sizes());
}

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  TORCH_CHECK(q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16, "FlashAttention of ", q.scalar_type());
  for (const at::Tensor& one : {q, k, v}) {
    TORCH_CHECK(one.scalar_type() == q.scalar_type(), "FlashAttention of ", q.scalar_type(), " and ",
                one.scalar_type());
    TORCH_CHECK(one.device() == q.device(), "FlashAttention on ", q.device(), " and ", one.device());
    TORCH_CHECK(one.dim() == 3, "FlashAttention of a ragged batch takes [rows, heads, d], not ", one.sizes());
    TORCH_CHECK(one.stride(-1) == 1, "FlashAttention of heads that are not contiguous");
    // Its loads are of 16 bytes; nothing checks that there.
    TORCH_CHECK(
        one.stride(0) % 8 == 0 && one.stride(1) % 8 == 0 && reinterpret_cast<uintptr_t>(one.const_data_ptr()) % 16 == 0,
        "FlashAttention of heads that are not 16-byte aligned");
  }
  TORCH_CHECK(q.size(2) % 8 == 0 && q.size(2) <= 256, "FlashAttention of heads of ", q.size(2));
  TORCH_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "FlashAttention of ", q.size(1), " heads over ", k.size(1));
  TORCH_CHECK(k.sizes() == v.sizes() && k.size(2) == q.size(2), "FlashAttention of keys ", k.sizes(), " and values ",
              v.sizes());
}

/// Attends for one sequence: q [queries, heads, d], k, v [keys, kv_heads, d]. The last query stands at the last key. It
/// sees `left` keys before its own and `right` after it; negative: all.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale, int64_t left,
                  int64_t right) {
  const int64_t queries = q.size(0), keys = k.size(0), group = q.size(1) / k.size(1);
  const auto per_head = [&](const at::Tensor& x) {
    return x.to(at::kFloat).repeat_interleave(group, 1).permute({1, 0, 2});
  };
  at::Tensor scores = at::bmm(q.to(at::kFloat).permute({1, 0, 2}), per_head(k).transpose(1, 2)).mul_(scale);
  const at::Tensor distance = at::arange(keys).unsqueeze(0) - (at::arange(queries) + (keys - queries)).unsqueeze(1);
  if (left >= 0) scores.masked_fill_(distance < -left, -std::numeric_limits<float>::infinity());
  if (right >= 0) scores.masked_fill_(distance > right, -std::numeric_limits<float>::infinity());
  const at::Tensor weights = at::exp(scores - scores.amax(-1, true)).nan_to_num(0.0);  // a row without keys: 0
  const at::Tensor sums = weights.sum(-1, true);
  const at::Tensor result = at::bmm(weights.to(q.scalar_type()).to(at::kFloat), per_head(v)) / sums;
  return result.nan_to_num(0.0).permute({1, 0, 2}).to(q.scalar_type());
}

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Results flash_attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const std::optional<at::Tensor>& query_starts,
                                const std::optional<at::Tensor>& key_starts, int64_t max_queries, int64_t max_keys,
                                double dropout, bool causal, bool debug, std::optional<double> scale,
                                std::optional<int64_t> left, std::optional<int64_t> right,
                                const std::optional<at::Tensor>& used_keys, const std::optional<at::Tensor>& slopes) {
  TORCH_CHECK(!slopes, "this build of FlashAttention has no ALiBi");
  TORCH_CHECK(query_starts && key_starts, "the fake device has FlashAttention of ragged batches only");
  TORCH_CHECK(dropout == 0 && !debug && !used_keys, "the fake device has FlashAttention for inference only");
  check(q, k, v);
  check_starts(*query_starts, *key_starts, "cum_seq_q");
  check_starts(*key_starts, *query_starts, "cum_seq_k");
  TORCH_CHECK(query_starts->size(0) > 1, "FlashAttention of no sequences");
  ++calls;
  const at::Tensor out = at::empty_like(q), on_host = host_view(out);
  const at::Tensor host_q = host_view(q), host_k = host_view(k), host_v = host_view(v),
                   host_rows = host_view(*query_starts), host_keys = host_view(*key_starts);
  const auto rows = host_rows.accessor<int32_t, 1>(), keys = host_keys.accessor<int32_t, 1>();
  for (int64_t s = 0; s + 1 < rows.size(0); ++s) {
    const int64_t queries = rows[s + 1] - rows[s], count = keys[s + 1] - keys[s];
    // A kernel would leave out what lies beyond the longest sequence.
    TORCH_CHECK(queries >= 0 && count >= 0 && queries <= max_queries && count <= max_keys, "sequence ", s, " has ",
                queries, " queries and ", count, " keys, of at most ", max_queries, " and ", max_keys);
    TORCH_CHECK(rows[s + 1] <= q.size(0) && keys[s + 1] <= k.size(0), "sequence ", s, " ends beyond the rows");
    if (queries == 0) continue;
    at::Tensor result = on_host.narrow(0, rows[s], queries);
    if (count == 0) {
      result.zero_();
      continue;
    }
    result.copy_(attend(host_q.narrow(0, rows[s], queries), host_k.narrow(0, keys[s], count),
                        host_v.narrow(0, keys[s], count), scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2)))),
                        left.value_or(-1), causal ? 0 : right.value_or(-1)));
  }
  const at::Tensor sums = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  const at::Tensor state = at::empty({2}, q.options().dtype(at::kLong));
  return {out, sums, state, at::empty({}, state.options()), at::empty({0}, q.options())};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("_flash_attention_forward", &flash_attention_forward); }

}  // namespace

int64_t flash_attention_calls() { return calls; }

}  // namespace pm::fake_device
