// SPDX-License-Identifier: Apache-2.0
// Prefill attention by FlashInfer's kernel for sm_90, for tools/gpu/libraries.py to measure: one sequence, causal,
// bf16, heads of 128. FlashInfer's headers are not part of this repository; tools/gpu/flashinfer.sh fetches them.
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/mask.cuh>

/// q and out are [tokens, heads, 128], k and v [keys, kv_heads, 128]; the last query stands at the last key. Returns
/// the launch's cudaError_t.
extern "C" int flashinfer_prefill(void* q, void* k, void* v, void* out, int heads, int kv_heads, int tokens, int keys,
                                  float scale, void* stream) {
  constexpr int head_dim = 128;
  using Number = cutlass::bfloat16_t;
  using Params = flashinfer::SinglePrefillParams<Number, Number, Number>;
  Params params{};
  params.q_ptr = static_cast<Number*>(q), params.k_ptr = static_cast<Number*>(k),
  params.v_ptr = static_cast<Number*>(v), params.o_ptr = static_cast<Number*>(out);
  params.additional_params.sm_scale = scale;
  params.q_stride_n = params.o_stride_n = heads * head_dim;
  params.k_stride_n = params.v_stride_n = kv_heads * head_dim;
  params.q_stride_h = params.k_stride_h = params.v_stride_h = params.o_stride_h = head_dim;
  params.qo_len = tokens, params.kv_len = keys, params.num_qo_heads = heads, params.num_kv_heads = kv_heads;
  params.group_size = heads / kv_heads, params.window_left = -1, params.causal = true;
  return static_cast<int>(
      flashinfer::SinglePrefillWithKVCacheDispatched<head_dim, head_dim, flashinfer::MaskMode::kCausal,
                                                     /*LEFT_SLIDING_WINDOW=*/false, flashinfer::StandardAttention,
                                                     Params>(params, static_cast<cudaStream_t>(stream)));
}
