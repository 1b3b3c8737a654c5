// SPDX-License-Identifier: Apache-2.0
// Lists the keywords of policies, beside those of spec/enums.h: the words that a key may take instead of an expression.
#pragma once
#include <string_view>
#include <vector>

namespace pm::policy {

inline const std::vector<std::string_view> layout_words{"linear", "conv1d"},
    expert_layout_words{"linear", "conv1d", "by_shape"}, keep_in_fp32_words{"if_f16"},
    norm_words{"layer", "rms", "gemma_rms", "layer1p", "affine"}, mask_words{"full", "causal"},
    rotary_words{"neox", "interleaved"}, rotary_axes_words{"sections", "interleaved", "apart", "alternating"},
    fused_words{"concat", "per_head", "grouped"}, gate_up_words{"concat", "interleaved"},
    order_words{"pre", "post", "parallel", "reversible"}, position_words{"none"},
    sinusoid_words{"paper", "tensor2tensor"}, grid_words{"sine", "learned"}, position_ids_words{"rows", "tokens"},
    part_words{"q", "k", "v"}, reads_words{"tokens", "images", "audio"}, states_words{"raw", "normed"},
    encoder_states_words{"own", "projected"}, attentions_words{"probabilities", "scores"},
    over_words{"heads", "projection"}, pooling_words{"mean", "max"},
    pooler_words{"first", "last", "eot", "last_eos", "patches"};

/// The sizes and defaults of a stack, from the stack itself or from a policy's `let`.
inline const std::vector<std::string_view> size_words{"layers", "hidden", "embedding", "heads", "kv_heads", "head_dim",
                                                      "ffn",    "vocab",  "positions", "act",   "eps",      "scale"};

}  // namespace pm::policy
