// A model as a policy and a checkpoint describe it together: topology, options and, for each parameter, where its bytes are.
// No torch here: `inspect` and the planner's facts come from it; worker/layers builds modules from it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/cuts.h"
#include "planner/facts.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/policy/roles.h"

namespace pm::policy {

/// How several logical matrices lie in one stored tensor. Concat: whole parts after each other along the output dimension, of unlike heights when kv heads are fewer.
/// PerHead: for each head its q, k, v rows. Grouped: for each kv group its q heads, then one k, then one v. Blocks: for each of some equal blocks of heads its parts.
enum class Fused : uint8_t { None, Concat, PerHead, Grouped, Blocks };

/// One parameter of the model: what it is, its logical shape, and the tensor of the checkpoint that holds it.
struct Param {
  Role role = Role::NormGain;
  std::string path;                     ///< our own name: "decoder.layers.0.attn.query.weight"
  std::string stack;                    ///< name of the stack, "" outside
  int layer = -1;
  const checkpoint::TensorInfo* tensor = nullptr;   ///< owned by the Checkpoint
  std::vector<int64_t> shape;           ///< logical and whole: [out, in] for matrices whatever the storage order
  bool in_out = false;                  ///< stored as [in, out] (Conv1D)
  Fused fused = Fused::None;
  int part = 0, parts = 1;              ///< which of the fused matrices (q=0, k=1, v=2)
  int64_t units = 1;                    ///< along the cut dimension: heads, rows of kv heads, ffn columns, vocabulary rows
  int64_t block = 1;                    ///< units that lie together as one head: head_dim for rows of kv heads, else 1
  int64_t group = 1;                    ///< fused only: q heads per kv head
  int64_t blocks = 1;                   ///< Blocks only: how many
  int place = 0;                        ///< Blocks only: which of a block's parts this one is
  DType dtype = DType::F32;             ///< to be held in when the plan's precision does not say otherwise
  bool keep = false;                    ///< dtype stands whatever the plan's precision
  bool matrix = false;                  ///< multiplied, or of one storage with what is: int8 may hold it
  std::string shares;                   ///< path of an earlier parameter whose storage this one is; empty: its own
};

struct Linear { Param weight; std::optional<Param> bias; };

/// RmsZeroCentred: the stored gain is what is added to 1 (Gemma).
enum class NormKind : uint8_t { Layer, Rms, RmsZeroCentred };
struct Norm { NormKind kind = NormKind::Layer; double eps = 1e-5; std::optional<Param> gain, bias; };

enum class Mask : uint8_t { Full, Causal };
enum class RotaryStyle : uint8_t { Half, Interleaved };
/// `values`: values are turned as queries and keys are (RoFormer's rotary_value).
struct Rotary { RotaryStyle style = RotaryStyle::Half; int64_t dims = 0; double theta = 10000; nlohmann::json scaling; bool values = false; };
struct BucketBias { Param table; int64_t buckets = 32, far = 128; bool bidirectional = true; };
/// Slopes of Press et al., "Train short, test long" (2021). BLOOM adds them to the scaled scores; Falcon adds them, rounded to bf16, before scaling.
struct Alibi { bool scaled = false, bf16 = false; };

struct Attention {
  std::optional<Norm> norm;             ///< before (pre) or after the residual sum (post), as the layer's order says
  std::optional<Norm> post_norm;        ///< of what the block adds to the residual (Gemma 2)
  std::optional<Norm> query_norm, key_norm; ///< of each head's vector, before the rotary turn (Qwen3)
  Mask mask = Mask::Full;
  double scale = 1;                     ///< of q.k
  double softcap = 0;                   ///< 0: none; else scaled scores become softcap * tanh(score / softcap)
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;                   ///< 0: none; else a token sees itself and window-1 before it
  std::string source;                   ///< cross-attention: the stack it attends to
  std::optional<Alibi> alibi;
  std::optional<Rotary> rotary;
  std::optional<BucketBias> bucket_bias; ///< of this layer, or of the layer that shares its table
  Linear query, key, value, out;
};

struct Mlp {
  std::optional<Norm> norm, post_norm;  ///< as Attention's
  std::string activation = "gelu";      ///< gelu, gelu_new, relu, silu, quick_gelu, tanh
  int64_t width = 0;                    ///< columns
  Linear up, down;
  std::optional<Linear> gate;
};

/// Post: x = norm(x + f(x)). Pre: x = x + f(norm(x)). Parallel: x = x + attn(norm(x)) + mlp(norm'(x)).
enum class Order : uint8_t { Pre, Post, Parallel };

struct Layer {
  Order order = Order::Pre;
  bool residual_normed = false;         ///< Pre only: the residual is norm(x), not x (BLOOM's apply_residual_connection_post_layernorm)
  Attention attention;
  std::optional<Attention> cross;
  Mlp mlp;
};

/// Sinusoids are computed: sines of all frequencies, then cosines. Paper (Vaswani et al. 2017): frequency i of n is 10000^(-i / n). Tensor2Tensor: 10000^(-i / (n - 1)),
/// in fp32 as fairseq computes it.
enum class PositionKind : uint8_t { None, Learned, Paper, Tensor2Tensor };
/// A further table of the input. Its rows are numbers that the request gives under the name `input`, [rows, length], or one `column` of several per token
/// [rows, length, columns], less another one, `minus` (LayoutLM's width is right less left).
struct IndexTable {
  Param table;
  std::string input;
  int64_t column = -1, minus = -1;      ///< -1: none
  bool given = false;                   ///< nothing is added for a request without `input` (XLM's langs); else such a request means row `usual`
  int64_t usual = 0;
  /// Names the numbers: "token_type_ids", "bbox.0", "bbox.2-0".
  std::string key() const;
};

/// Dense vectors of a request that stand behind the tokens of their row (VisualBERT's regions of an image): projected, and beside that a sum of rows as a token's.
struct Features {
  Linear projection;                    ///< [embedding, width of a vector]
  std::string input, mask;              ///< what the request calls them [rows, vectors, width] and the mask of them [rows, vectors]
  std::optional<Param> positions;       ///< its first row is added to each vector
  std::string align;                    ///< what the request calls positions of tokens [rows, vectors, positions], -1: none, whose rows' mean is added; empty: there are none
  std::vector<IndexTable> tables;       ///< numbers [rows, vectors]
};

struct Input {
  std::optional<Param> token;
  double scale = 1;
  PositionKind position = PositionKind::None;
  std::optional<Param> positions;
  int64_t position_offset = 0;          ///< rows of the table that lie before position 0
  bool position_kept = false;           ///< positions count the tokens that are not padding (RoBERTa, MPNet); else columns of the batch
  bool position_cells = false;          ///< positions begin anew in each cell of a table: token_type_ids' columns 1 and 2 tell its column and row (TAPAS)
  bool position_given_rows = false;     ///< position_ids of a request count the table's rows, the offset is in them (RoBERTa, MPNet)
  bool position_last = false;           ///< added after the norm and the projection (BlenderbotSmall's decoder, OPT-350m), else before
  std::vector<IndexTable> tables;
  std::optional<Features> features;
  std::optional<Linear> projection;     ///< factorised embedding (ALBERT), patches (ViT, CLIP: [hidden, channels, p, p])
  std::optional<Param> class_token, distillation_token;   ///< in this order before the patches
  std::optional<Norm> norm;
  /// How many vectors stand before the patches of an image.
  int64_t extra_tokens() const { return (class_token ? 1 : 0) + (distillation_token ? 1 : 0); }
};

/// One vector per sequence: act(dense(norm(state of the pooled token))); absent parts are left out.
struct Pooler {
  std::string pool = "first";           ///< as Head::pool, but not "pooler"
  std::optional<Norm> norm;
  std::optional<Linear> dense;
  std::string activation;               ///< empty: none
};

struct Output {
  std::optional<Norm> norm;
  std::optional<Linear> projection;     ///< of what comes out of the norm, to the width of the embedding (OPT-350m)
  bool raw_states = false;              ///< Hugging Face's last entry of hidden_states is what goes into `norm`, not what comes out of it
  std::optional<Pooler> pooler;
};

/// One stack of layers.
struct Stack {
  std::string name;                     ///< encoder, decoder, vision, text
  int64_t hidden = 0, vocab = 0, positions = 0;
  Input input;
  std::vector<Layer> layers;
  Output output;
};

/// What turns scores of tokens into scores of a table's cells (TAPAS): a second score of tokens chooses the column.
struct Cells {
  Linear columns;                       ///< as Head::vector
  double temperature = 1;               ///< that scores of tokens are divided by
  int64_t rows = 64, across = 32;       ///< of the largest table; what lies beyond counts as the last
  bool empty = false;                   ///< whether no column may be chosen
};

/// Searches an answer: the likeliest first tokens, for each of these the likeliest last ones, and whether there is an answer at all (XLNet's head for SQuAD 2.0).
struct Spans {
  Linear start;                         ///< [1, hidden]: of a token, whether an answer begins there
  Linear end_dense, end;                ///< [hidden, 2 hidden], [1, hidden]: of a token beside the answer's first, whether it ends there
  std::optional<Norm> end_norm;
  Linear answer_dense, answer;          ///< [hidden, 2 hidden], [1, hidden]: of the mean of first tokens beside one token of the row
  int64_t starts = 5, ends = 5;         ///< how many first tokens, and last tokens of each
};

/// Scores of tokens that the request chooses with each dense vector behind them, from their states: query . key / sqrt(width) (VisualBERT's phrases and regions).
struct Pairs {
  Linear query, key;                    ///< [width, hidden]
  std::string chosen;                   ///< what the request calls the columns of chosen tokens [rows, tokens], -1: the first
};

/// A task head: logits over the vocabulary, or classes.
struct Head {
  std::string name, stack;              ///< stack it reads
  /// Which state of a sequence it reads. "": every token's; first; second (DeiT's distillation token); last; last_but_one (of the tokens, whatever stands behind them); pooler (the stack's); eot (CLIP: the end token's, or the one with the
  /// largest id when eos_token_id is 2); last_eos (BART, T5: the last end token's); patches (mean of all but the class token).
  std::string pool;
  std::vector<std::string> outputs{"logits"};   ///< Hugging Face's names; two (start_logits, end_logits): one column each
  std::optional<Linear> dense;
  std::string activation;
  std::optional<Norm> norm;
  double scale_input = 1;
  double softcap = 0;                   ///< of logits, as Attention's
  std::optional<Linear> logits, classes;
  std::optional<Param> scalar;          ///< CLIP's logit_scale
  bool vector = false;                  ///< `classes` is one vector [hidden] with a bias of one number: one score per state, and no dimension of classes
  std::optional<Cells> cells;
  std::optional<Spans> spans;           ///< `outputs` are their five: probabilities and places of first tokens, of last tokens, score of no answer
  std::optional<Pairs> pairs;
  std::vector<std::string> mean;        ///< the heads of one vector per sequence whose mean this one is (DeiT's two classifiers)
  std::vector<std::string> between;     ///< similarity: the two heads (text, image) whose normalised vectors are compared, times exp(scalar)
};

struct Model {
  std::string model_type, architecture, task;
  std::vector<Stack> stacks;
  std::vector<Head> heads;
  std::vector<std::string> not_loaded;  ///< tensors of other heads and those that the policy ignores: reported
  std::string topology;                 ///< the policy's: decoder, encoder, encoder-decoder, dual, vision
  std::vector<int64_t> eos;             ///< from generation_config.json or config.json
  int64_t forced_bos = -1, forced_eos = -1;   ///< forced_bos_token_id, forced_eos_token_id of generation_config.json or config.json; -1: none
  int64_t decoder_start = -1;           ///< encoder-decoder: the id that begins an answer (decoder_start_token_id ?? bos_token_id); -1: none
  bool wraps = false;                   ///< decoder_input_ids made of input_ids begin with the text's last token, not with decoder_start (mBART, FSMT)
  Facts facts;                          ///< exact: sum over params whose `shares` is empty

  /// Every parameter in a fixed order; the pointers live as long as the model.
  std::vector<const Param*> params() const;
  const Stack* stack(std::string_view name) const;
};

/// Resolves the built-in (or given) policy of config.json's model_type against the checkpoint. Each tensor of the checkpoint is read
/// by a role, known to another head, or ignored, and each role is filled; else Error{Model, "ModelUnreadable"} lists the names.
/// Errors: UnknownArchitecture (no policy for this model_type, or no such class), UnsupportedPolicy (the policy file is wrong: file
/// and line), ModelUnreadable. `policy_file` empty: built-in.
Model resolve(const checkpoint::Checkpoint&, const std::filesystem::path& policy_file = {});

/// One rectangular piece of a stored tensor viewed as [rows, cols], in units of elements.
struct Piece { int64_t row = 0, rows = 0, col = 0, cols = 0; };

/// The shape of the parameter's tensor in the checkpoint, without leading dimensions of 1 that the parameter does not have (ViT's [1, rows, hidden]).
std::vector<int64_t> stored_shape(const Param&);
/// The pieces of the stored tensor that hold `range` units of the parameter, in the order in which they make the local logical
/// tensor when laid along its cut dimension (for in_out storage: along the stored dimension that is the logical one, i.e. transpose
/// after laying out). 1-D tensors are [1, n] with pieces cutting columns; tensors of more than two dimensions are [dim 0, rest].
std::vector<Piece> pieces(const Param&, Range range);
/// The local logical shape of the parameter for `range`.
std::vector<int64_t> local_shape(const Param&, Range range);
/// Inputs that share a scale where int8 holds the matrix (planner/facts.h): int8_group, or a head where heads of another size cut the inputs.
int64_t scale_group(const Param&);
/// The range of units of the parameter that `rank` holds under `cuts`.
Range range_of(const Param&, const Cuts& cuts, int rank);

/// A class of transformers that a policy knows: its task, or the sentence with which it is refused.
struct FamilyClass { std::string name, topology, task, refusal; };
/// Rows of `families`: one per policy.
struct Family { std::string name; std::vector<std::string> model_types; std::string topology; std::vector<FamilyClass> classes; };
std::vector<Family> families();
/// [{name, model_types, topology, classes: [{name, topology, task | refused}]}]
nlohmann::json families_json();

}  // namespace pm::policy
