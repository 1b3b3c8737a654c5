// SPDX-License-Identifier: Apache-2.0
// The keys of blocks that stand in place of usual attention.
#pragma once
#include "worker/policy/schema/rules.h"

namespace pm::policy {

inline Rule delta_net() {
  return section({{"when", expression},      {"at", names},
                  {"norm", norm_row()},      {"post_norm", norm_row()},
                  {"key_heads", expression}, {"value_heads", expression},
                  {"key_dim", expression},   {"value_dim", expression},
                  {"taps", expression},      {"qkvz", linear()},
                  {"ba", linear()},          {"qkv", linear()},
                  {"z", linear()},           {"b", linear()},
                  {"a", linear()},           {"convolution", linear()},
                  {"decay", row()},          {"step_bias", row()},
                  {"out_norm", norm_row()},  {"out", linear()}});
}

inline Rule short_convolution() {
  return section({{"when", expression},
                  {"at", names},
                  {"norm", norm_row()},
                  {"post_norm", norm_row()},
                  {"taps", expression},
                  {"in", linear()},
                  {"convolution", linear()},
                  {"out", linear()}});
}

inline Rule state_space() {
  return section({{"when", expression},
                  {"at", names},
                  {"norm", norm_row()},
                  {"post_norm", norm_row()},
                  {"heads", expression},
                  {"head_dim", expression},
                  {"groups", expression},
                  {"state_size", expression},
                  {"taps", expression},
                  {"least_step", expression},
                  {"most_step", expression},
                  {"in", linear()},
                  {"convolution", linear()},
                  {"decay", row()},
                  {"step_bias", row()},
                  {"skip", row()},
                  {"out_norm", norm_row()},
                  {"out", linear()}});
}

inline Rule latent_attention() {
  return section({{"when", expression},
                  {"rank", expression},
                  {"q_down", linear()},
                  {"q_norm", norm_row()},
                  {"kv_down", linear()},
                  {"kv_norm", norm_row()},
                  {"kv_up", linear()}});
}

}  // namespace pm::policy
