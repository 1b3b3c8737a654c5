// SPDX-License-Identifier: Apache-2.0
// The keys of blocks that stand in place of usual attention.
#pragma once
#include "worker/policy/schema/rules.h"

namespace pm::policy {

/// The keys of every block that keeps a state of each sequence.
inline Keys recurrent_keys() {
  return {{"when", expression},      {"at", names},        {"norm", norm_row()},
          {"post_norm", norm_row()}, {"taps", expression}, {"convolution", linear()},
          {"out", linear()}};
}

inline Rule delta_net() {
  return section(recurrent_keys() + Keys{{"key_heads", expression},
                                         {"value_heads", expression},
                                         {"key_dim", expression},
                                         {"value_dim", expression},
                                         {"qkvz", linear()},
                                         {"ba", linear()},
                                         {"qkv", linear()},
                                         {"z", linear()},
                                         {"b", linear()},
                                         {"a", linear()},
                                         {"decay", row()},
                                         {"step_bias", row()},
                                         {"out_norm", norm_row()}});
}

inline Rule short_convolution() { return section(recurrent_keys() + Keys{{"in", linear()}}); }

inline Rule state_space() {
  return section(recurrent_keys() + Keys{{"heads", expression},
                                         {"head_dim", expression},
                                         {"groups", expression},
                                         {"state_size", expression},
                                         {"least_step", expression},
                                         {"most_step", expression},
                                         {"in", linear()},
                                         {"decay", row()},
                                         {"step_bias", row()},
                                         {"skip", row()},
                                         {"out_norm", norm_row()}});
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
