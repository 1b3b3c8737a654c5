// SPDX-License-Identifier: Apache-2.0
// Describes a model as a policy and a checkpoint give it: kind, options and, for each parameter, the tensor that
// holds it. It needs no torch: `inspect` and the planner read it, and worker/layers builds modules from it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/model_metadata.h"
#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/head.h"
#include "worker/policy/spec/recompute.h"
#include "worker/policy/spec/retrieval.h"
#include "worker/policy/spec/stack.h"

namespace pm::policy {

struct Model {
  std::string model_type, architecture;
  Task task = Task::Generate;
  ModelKind kind = ModelKind::Decoder;
  std::vector<Stack> stacks;
  std::vector<Head> heads;
  std::vector<std::string> not_loaded;  ///< tensors of other heads and tensors that the policy ignores
  std::vector<int64_t> eos;             ///< from generation_config.json or config.json
  int64_t forced_bos = -1,
          forced_eos =
              -1;  ///< forced_bos_token_id, forced_eos_token_id of generation_config.json or config.json; -1: none
  int64_t decoder_start =
      -1;  ///< encoder-decoder: the decoder's start token (decoder_start_token_id ?? bos_token_id); -1: none
  bool shift_tokens = false;  ///< default decoder_input_ids begin with the last token of input_ids, not with
                              ///< decoder_start (mBART, FSMT)
  GlobalTokens global_tokens =
      GlobalTokens::None;              ///< of a sliding window, for a request without global_attention_mask
  int64_t separator = -1;              ///< the token between two texts (sep_token_id); -1: none
  std::optional<Retrieval> retrieval;  ///< the model generates from passages that it finds
  std::string images_refused;  ///< why a tower of images is not loaded beside the decoder; empty: none is left out
  std::optional<Recompute> recompute;  ///< the model generates beside its task, without a KV cache
  ModelMetadata metadata;              ///< exact: sum over params whose `shares` is empty

  /// Returns every parameter that has a tensor, in a fixed order. The pointers live as long as the model.
  std::vector<const Param*> params() const;
  const Stack* stack(std::string_view name) const;
  /// Returns whether the class generates: by its task or beside it.
  bool generates() const { return task == Task::Generate || recompute; }
  /// Returns whether rows of a request may be choices of a question: [batch, choices, length].
  bool takes_choices() const;
  /// Returns the stack that joins the one with this name to another, or nullptr.
  const Stack* joining(std::string_view name) const;
};

/// Returns whether tokens of the model choose among experts. They do so with the host's help, so that no CUDA graph has
/// such a step.
bool has_experts(const Model&);

/// Throws Error{UnknownArchitecture}: the model has what this version does not run. `what` continues its name:
/// "has a window without a causal mask".
[[noreturn]] void refuse_architecture(const Model&, const std::string& what);

/// A parameter and its place in the model: a layer of its stack, stack_input or stack_output. Heads stand at
/// stack_input of the stack "".
struct PlacedParam {
  const Param* param;
  int place;
};
/// Returns what Model::params() returns, with the places.
std::vector<PlacedParam> placed_params(const Model&);

}  // namespace pm::policy
