// The words of policies: what a slot may say besides an expression.
#pragma once
#include <string_view>
#include <vector>

namespace pm::policy {

inline const std::vector<std::string_view> stored_words{"out_in", "in_out"}, keep_words{"f32_if_f16"}, norm_words{"layer", "rms", "rms_zero_centred"},
    mask_words{"full", "causal"}, rotary_words{"half", "interleaved"}, fused_words{"concat", "per_head", "grouped"}, order_words{"pre", "post", "parallel"},
    position_words{"none"}, sinusoid_words{"paper", "tensor2tensor"}, given_words{"rows", "tokens"}, part_words{"q", "k", "v"}, states_words{"raw", "normed"},
    pool_words{"first", "second", "last", "last_but_one", "eot", "last_eos", "patches", "pooler"}, pooler_words{"first", "last", "eot", "last_eos", "patches"},
    topology_words{"encoder", "decoder", "encoder-decoder", "dual", "vision"},
    task_words{"embed", "generate", "fill-mask", "next-sentence", "classify", "classify-tokens", "question-answering", "multiple-choice",
               "similarity", "classify-images", "forward"},
    activation_words{"gelu", "gelu_new", "relu", "silu", "quick_gelu", "tanh"};

/// Values that every stack has; a policy's `let` or the stack itself gives them.
inline const std::vector<std::string_view> size_words{"layers", "hidden", "embedding", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions",
                                                      "act", "eps", "scale"};

}  // namespace pm::policy
