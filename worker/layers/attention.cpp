// See layers.h: self-attention over the paged cache.
#include <ATen/ATen.h>

#include "worker/layers/layers.h"

namespace pm::layers {

KvCache::KvCache(const policy::Stack& stack, const Loader& loader, int64_t blocks, DType type) {
  for (const policy::Layer& layer : stack.layers) {
    const int64_t heads = loader.range(layer.attention.key.weight).size();
    const std::vector<int64_t> shape{blocks, heads, ops::block_tokens, layer.attention.head_dim};
    keys_.push_back(arena_.allocate(shape, scalar_type(type)));
    values_.push_back(arena_.allocate(shape, scalar_type(type)));
  }
}

SelfAttention::SelfAttention(const policy::Attention& attention, Loader& loader)
    : options_{attention.scale, attention.mask == policy::Mask::Causal, attention.window},
      heads_(loader.range(attention.query.weight).size()),
      kv_heads_(loader.range(attention.key.weight).size()),
      head_dim_(attention.head_dim),
      all_heads_(attention.heads),
      qkv_({&attention.query, &attention.key, &attention.value}, loader),
      out_(attention.out, loader) {
  for (int rank = 0; rank < loader.cuts().ranks(); ++rank) {
    heads_of_rank_.push_back(policy::range_of(attention.query.weight, loader.cuts(), rank).size());
  }
}

at::Tensor SelfAttention::operator()(const at::Tensor& x, const Batch& batch, at::Tensor& keys, at::Tensor& values,
                                     comm::Communicator& comm) const {
  const int64_t tokens = x.size(0);
  const at::Tensor qkv = qkv_(x);
  const at::Tensor q = qkv.narrow(1, 0, heads_ * head_dim_).reshape({tokens, heads_, head_dim_});
  const at::Tensor k = qkv.narrow(1, heads_ * head_dim_, kv_heads_ * head_dim_).reshape({tokens, kv_heads_, head_dim_});
  const at::Tensor v = qkv.narrow(1, (heads_ + kv_heads_) * head_dim_, kv_heads_ * head_dim_).reshape({tokens, kv_heads_, head_dim_});
  ops::write_kv(k, v, batch.slots, keys, values);
  return out_(attend(q, batch, keys, values, comm).reshape({tokens, heads_ * head_dim_}), comm);
}

at::Tensor SelfAttention::attend(const at::Tensor& q, const Batch& batch, at::Tensor& keys, at::Tensor& values,
                                 comm::Communicator& comm) const {
  if (!batch.capture || !batch.capture->attentions) return ops::paged_attention(q, keys, values, batch.sequences, options_);
  std::vector<at::Tensor> probabilities;
  const at::Tensor out = ops::paged_attention(q, keys, values, batch.sequences, options_, &probabilities);
  for (at::Tensor& of_sequence : probabilities) of_sequence = comm.gatherv(of_sequence.contiguous(), heads_of_rank_, 0);
  batch.capture->attention.push_back(std::move(probabilities));
  return out;
}

}  // namespace pm::layers
