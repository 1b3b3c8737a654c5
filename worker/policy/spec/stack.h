// SPDX-License-Identifier: Apache-2.0
// A stack of layers, with its input and its output.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/attention.h"
#include "worker/policy/spec/bottleneck.h"
#include "worker/policy/spec/co_attention.h"
#include "worker/policy/spec/convolution.h"
#include "worker/policy/spec/cross_block.h"
#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/input/input.h"
#include "worker/policy/spec/mlp.h"
#include "worker/policy/spec/param.h"
#include "worker/policy/spec/pooling.h"
#include "worker/policy/spec/recurrent/recurrent.h"

namespace pm::policy {

/// Where the norms of a layer stand. Post: x = norm(x + f(x)). Pre: x = x + f(norm(x)). Parallel: x = x +
/// attn(norm(x)) + mlp(norm'(x)). Reversible: there are two residual streams, x += attn(norm(y)), then y +=
/// mlp(norm'(x)); both begin as the input, and the stack's states are x and y beside each other (Gomez et al. 2017).
enum class Order : uint8_t { Pre, Post, Parallel, Reversible };

/// A feed-forward block that reads the same residual as the layer's last one: what both make is added before that one's
/// post_norm (Gemma 4's experts).
struct BesideMlp {
  Mlp mlp;
  std::optional<Norm> first_norm;  ///< of what the layer's last block makes, before both are added
};

/// What a layer reads of the tokens beside its states: x += norm(projection(act(gate(x)) * input)), behind all other
/// blocks (Gemma 3n's per-layer embeddings).
struct LayerInput {
  Activation activation = Activation::Gelu;
  Linear gate, projection;  ///< [width, hidden], [hidden, width]
  std::optional<Norm> norm;
};

struct Layer {
  Order order = Order::Pre;
  bool residual_normed =
      false;  ///< Pre only: the residual is norm(x), not x (BLOOM's apply_residual_connection_post_layernorm)
  bool has_mixer = true;  ///< attention, or what stands in its place; false: the layer is its MLP alone (Nemotron-H)
  bool has_mlp = true;    ///< false: the layer is its mixer alone
  double residual_multiplier = 1;  ///< of what a block adds to the residual (Granite)
  Attention attention;
  /// In place of attention, of which there are the norms and the stack's sizes then, and no projections.
  std::optional<Recurrent> recurrent;
  std::optional<Attention> cross;
  std::optional<Bottleneck> bottleneck;  ///< around all blocks
  std::vector<Mlp> stacked;              ///< between attention and `mlp`, each with its residual and norm
  Mlp mlp;
  std::optional<BesideMlp> beside;
  std::optional<LayerInput> input;
  std::optional<Param> factor;  ///< one number, of the states that leave the layer
  std::optional<ConvolutionBranch> branch;
  std::optional<CoAttention> co_attention;  ///< of layers whose stack joins two; attention and MLP are of its first
  std::optional<Pooling> pooling;           ///< of the rows that come to the layer
  std::optional<Upsampling> upsampling;
  bool repeats_state = false;  ///< the state that comes to the layer is a hidden state twice: as what a block of layers
                               ///< ends with, and as what the next one begins with (Perceiver)
};

/// Makes one vector per sequence: act(dense(norm(state of the pooled token))). Absent parts are left out.
struct Pooler {
  Pool pool = Pool::First;  ///< neither Second, LastButOne nor Pooler
  std::optional<Norm> norm;
  std::optional<Linear> dense;
  std::optional<Activation> activation;
};

struct Output {
  std::optional<Norm> norm;
  std::optional<Linear> projection;        ///< after the norm, to the width of the embedding (OPT-350m)
  std::optional<Linear> cross_projection;  ///< of the states, for the cross-attention of another stack that has another
                                           ///< width (EncoderDecoderModel's enc_to_dec_proj)
  std::optional<ImageProjector> image_projector;  ///< of the states, for the tokens of another stack
  std::vector<DeepProjector> deep_projectors;     ///< beside it; their layers ascend
  bool shows_projected = false;  ///< encoder_last_hidden_state has these states as that projection makes them
  bool raw_states = false;       ///< the last entry of hidden_states is the input of `norm`, not its output
  std::optional<Pooler> pooler;
  std::optional<OutputQueries> queries;  ///< what reads the states, of a stack with latents
};

/// States of earlier tokens, which keys and values of each layer read before those of the sequence (Dai et al.,
/// "Transformer-XL", 2019). A request gives those of its rows, or all are zero; they are attended to in any case.
struct Memory {
  int64_t length = 0;  ///< of each sequence, at least 1
  std::string input;   ///< the request's tensors are input.0, input.1, ... [rows, length, hidden], one for each layer
};

/// One stack of layers.
struct Stack {
  std::string name;  ///< encoder, decoder, vision, text
  int64_t hidden = 0, vocab = 0, positions = 0;
  Input input;
  std::vector<std::string> joins;  ///< two earlier stacks whose last states are the rows of this one; empty: it has an
                                   ///< input of its own
  std::optional<Memory> memory;
  std::vector<Layer> layers;
  Output output;

  /// Returns whether layers have two residual streams.
  bool is_reversible() const { return !layers.empty() && layers[0].order == Order::Reversible; }
  /// Returns the width of what the layers hand on: of both residual streams, where there are two.
  int64_t width() const { return is_reversible() ? 2 * hidden : hidden; }
};

/// Returns whether layers of the stack pool or upsample its rows.
bool resizes_rows(const Stack&);
/// Returns whether rows of the stack's states are others than those of its input: it pools, or has latents.
bool changes_rows(const Stack&);
/// Returns how many states a sequence has however short it is: its latents, or what reads them; 0: as many as rows.
int64_t least_states(const Stack&);
/// Returns which of the stack's hidden states is what the blocks of the layer `number` read, or the stack's last state
/// where it is the number of layers. Upsampled and repeated states stand behind those that came to the layer.
int64_t hidden_state_of(const Stack&, int64_t number);

/// Returns whether some layer attends to keys and values of an earlier one.
bool shares_keys(const Stack&);

/// Returns the number of tokens beyond which the keys of a whole sequence are rotated otherwise (LongRoPE); 0: there is
/// none.
int64_t short_rope_tokens(const Stack&);

/// Returns the number of axes along which tokens have positions of their own where images are among them (time, row and
/// column); 0: tokens have one position.
int64_t rotary_axes(const Stack&);

/// Returns whether the rows of the layers are tokens of the input, all of them and nothing else.
bool has_rows_of_tokens(const Stack&);

/// Returns whether layers keep a state of each sequence in place of keys and values.
bool is_recurrent(const Stack&);

/// Returns whether layers cache latents in place of keys and values.
bool has_latent_attention(const Stack&);

/// Returns whether tokens of the stack read what others make of their states, which may be padding: rows of padding are
/// computed as those of tokens are, and only attention does not see them. So transformers has it.
bool reads_padding(const Stack&);

}  // namespace pm::policy
