// SPDX-License-Identifier: Apache-2.0
// The task heads of a model: what every head has, and a spec for each kind. worker/models/heads runs them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/input/clusters.h"
#include "worker/policy/spec/mlp.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// What comes before the scores: scale * norm(act(dense(state))). Absent parts are left out.
struct HeadTransform {
  std::optional<Linear> dense;
  std::optional<Activation> activation;
  std::optional<Norm> norm;
  double scale = 1;

  void collect(ParamCollector&) const;
};

/// Scores over the vocabulary: the LM head.
struct LogitsSpec {
  std::optional<Pool> pool;  ///< the state of a sequence that is scored; absent: every token's
  HeadTransform transform;
  Linear linear;                ///< [vocabulary, width], or the first of its columns
  std::optional<Param> concat;  ///< [vocabulary, others]: the columns behind those of `linear` (MobileBERT)
  double softcap = 0;           ///< as Attention's

  void collect(ParamCollector&) const;
};

/// Scores of classes, or the projection of a vector.
struct ClassesSpec {
  std::optional<Pool> pool;  ///< as LogitsSpec's
  std::optional<Mlp> mlp;    ///< before the transform: states become norm(states + mlp(states))
  HeadTransform transform;
  std::optional<Linear> linear;  ///< [classes, width]; absent: the transformed states are the scores
  bool vector = false;     ///< `linear` is one vector [width] with a bias of one number: one score per state, and no
                           ///< dimension of classes
  double divisor = 1;      ///< of the scores
  bool per_pixel = false;  ///< rows are pixels: their scores are put out by rows and columns of the image
  bool mask_question = false;  ///< tokens of the question but the first have scores of 1e6 less (BigBird)

  void collect(ParamCollector&) const;
};

/// Scores of table cells, made of the scores of their tokens (TAPAS). A second score of tokens chooses the column.
struct CellsSpec {
  HeadTransform transform;
  Linear tokens, columns;          ///< both as ClassesSpec::vector
  double temperature = 1;          ///< divisor of token scores
  int64_t rows = 64, across = 32;  ///< size of the largest table; cells beyond it count as the last
  bool empty = false;              ///< true: no column may be chosen

  void collect(ParamCollector&) const;
};

/// Beam search for an answer span: the most likely first tokens, for each of them the most likely last tokens, and a
/// score that there is no answer (XLNet's head for SQuAD 2.0). It has five outputs: probabilities and positions of
/// first tokens, of last tokens, score of no answer.
struct SpansSpec {
  Linear start;  ///< [1, hidden]: of a token, whether an answer begins there
  Linear end_dense,
      end;  ///< [hidden, 2 hidden], [1, hidden]: of a token beside the answer's first, whether it ends there
  std::optional<Norm> end_norm;
  Linear answer_dense,
      answer;  ///< [hidden, 2 hidden], [1, hidden]: of the mean of first tokens beside one token of the row
  int64_t starts = 5, ends = 5;  ///< numbers of first tokens, and of last tokens for each

  void collect(ParamCollector&) const;
};

/// Scores of chosen tokens with each dense vector, from their states: query . key / sqrt(width) (VisualBERT's phrases
/// and regions).
struct PairsSpec {
  Linear query, key;   ///< [width, hidden]
  std::string chosen;  ///< the request's tensor of chosen columns [rows, tokens], -1: the first

  void collect(ParamCollector&) const;
};

/// Compares the normalized vectors of two heads (text, image), times exp(scalar).
struct SimilaritySpec {
  std::array<std::string, 2> between;
  std::optional<Param> scalar;  ///< CLIP's logit_scale

  void collect(ParamCollector&) const;
};

/// A layer of a time delay network: relu of a linear of `taps` frames that are `dilation` frames apart.
struct TimeDelayLayer {
  Linear linear;  ///< [out, taps x in]: the inputs of the first frame, then those of the second, ...
  int64_t taps = 1, dilation = 1;
};

/// Vectors of speakers (x-vectors, Snyder et al. 2018): a time delay network over the frames, mean and standard
/// deviation over time, a linear that gives the vector, and one that gives scores. Two outputs: scores, vector.
/// Where a row is padded, the frames that count are reckoned without the dilations, as transformers does: some frames
/// of padding count too.
struct TimeDelaySpec {
  HeadTransform transform;
  std::vector<TimeDelayLayer> layers;
  Linear vector, classes;  ///< [width, 2 x out of the last layer], [classes, width]

  /// Returns by how many frames the layers shorten a row; without the dilations, what transformers subtracts.
  int64_t reach(bool dilated) const;
  void collect(ParamCollector&) const;
};

/// Projected states beside the quantized frames that they are trained to predict (wav2vec 2.0, Baevski et al. 2020): of
/// each group the entry with the highest score. Three outputs: states, quantized frames, perplexity of the entries.
struct CodebookSpec {
  Linear states;     ///< [width, hidden]
  Linear scores;     ///< [groups x entries, channels of the frames]
  Param entries;     ///< [groups x entries, part of a vector]
  Linear quantized;  ///< [width, groups x part of a vector]
  int64_t groups = 1;

  void collect(ParamCollector&) const;
};

/// Boxes of detected objects [center x, center y, width, height] as shares of the image: the sigmoid of linears with a
/// ReLU after each but the last (DETR).
struct BoxesSpec {
  std::vector<Linear> layers;  ///< the last one is [4, width]

  void collect(ParamCollector&) const;
};

/// A convolution of the mask head with a bias: act(group_norm(kernel * x)), of 8 groups or one for each channel.
struct MaskConvolution {
  Linear kernel;  ///< [channels out, channels in, size, size]
  Norm norm;
};

/// Masks of detected objects (DETR): how each state attends to the cells of the encoder by each head, beside the
/// projected cells, goes through convolutions. Then the map is enlarged to that of each earlier stage of the backbone
/// in turn, to which an adapter of that stage is added, and refined. It has one output [rows, states, height, width].
struct MasksSpec {
  std::string cells;  ///< the stack of cells
  int64_t heads = 1;
  Linear query, key;  ///< [hidden, hidden]
  struct Fusion {
    Linear adapter;  ///< [channels, channels of the stage, 1, 1]
    MaskConvolution refine;
  };
  std::vector<MaskConvolution> convolutions;
  std::vector<Fusion> fusions;  ///< with the last stage but one, and so on to the first
  Linear output;                ///< [1, channels, size, size]
  Activation activation = Activation::Relu;

  void collect(ParamCollector&) const;
};

/// Pixels of images from the states of their patches: a linear of each gives those of a square, channel by channel and
/// row by row (pixel shuffle; Shi et al. 2016). One output [images, channels, height, width].
struct PixelShuffleSpec {
  Linear linear;  ///< [channels x size x size, width, 1, 1]
  int64_t size = 1;

  void collect(ParamCollector&) const;
};

/// The mean of two heads (DeiT's classifiers).
struct MeanSpec {
  std::array<std::string, 2> of;

  void collect(ParamCollector&) const {}
};

/// The passages of an index whose embeddings have the highest inner products with the pooled vector of a text (DPR;
/// Karpukhin et al. 2020). Two outputs, best first: the products [rows, count] and the passages' numbers.
struct PassagesSpec {
  std::vector<Param> embeddings;  ///< [passages, width] of each file of the index; passages are numbered over all
  int64_t count = 5;              ///< passages of a text

  void collect(ParamCollector&) const;
};

struct Head {
  std::string name, stack;  ///< the stack that it reads
  std::vector<std::string> outputs{
      "logits"};  ///< Hugging Face's names; two (start_logits, end_logits): one column each
  std::variant<LogitsSpec, ClassesSpec, CellsSpec, SpansSpec, PairsSpec, SimilaritySpec, MeanSpec, TimeDelaySpec,
               CodebookSpec, BoxesSpec, MasksSpec, ClustersSpec, PassagesSpec, PixelShuffleSpec>
      kind;
  std::optional<EntityStates> entities;  ///< the head reads states of entities, not of tokens
  /// The head scores the states of the streams that predict following tokens, not those of the main one. Two outputs:
  /// scores by the first stream, and by all others.
  bool streams = false;
  /// [layers + 1]: the head reads the sum of all hidden states, weighted by the softmax of these; absent: the last
  /// state.
  std::optional<Param> layer_weights;

  /// Returns the spec when the head is of this kind, or nullptr.
  template <typename Spec>
  const Spec* as() const {
    return std::get_if<Spec>(&kind);
  }
  /// Returns the state of a sequence that the head reads; nothing for heads that read every token's, or other heads.
  std::optional<Pool> pool() const;
  /// Returns whether there is one row of scores per sequence.
  bool is_pooled() const { return pool() || entities == EntityStates::First || entities == EntityStates::Pair; }
  /// Returns the number of scores of one state; 0 for heads that do not score states one by one.
  int64_t scores() const;
  /// Returns true for heads whose outputs depend on the frames of padding too.
  bool reads_padding() const { return as<TimeDelaySpec>() || as<CodebookSpec>(); }
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
