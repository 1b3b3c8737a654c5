// SPDX-License-Identifier: Apache-2.0
// The capabilities of a model: its task, the routes that it supports, and how its checkpoint embeds, pools and
// classifies.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/audio/feature_extractor.h"
#include "worker/image/processor.h"
#include "worker/policy/spec/model.h"
#include "worker/server/serving/embedding.h"
#include "worker/server/serving/sentence_transformer.h"
#include "worker/server/serving/sparse_embedding.h"
#include "worker/server/serving/speech_tokens.h"
#include "worker/tokenizer/ctc_decoder.h"

namespace pm::server {

struct LogitScore;

struct Capabilities {
  std::string architecture;
  policy::Task task = policy::Task::Generate;
  policy::ModelKind kind = policy::ModelKind::Decoder;
  bool also_generates = false;  ///< the model generates beside its task
  int64_t positions = 0;        ///< maximum tokens of one input; 0: no limit
  bool token_types = false;     ///< the model has token_type_ids
  bool takes_text = true;       ///< the model has input_ids
  bool retrieves = false;       ///< the model generates from passages that it finds

  Embedding text, image;
  std::string states;             ///< output with the hidden states, for other poolings
  int64_t states_width = 0;       ///< values per token of that output
  std::string pooler;             ///< output with the pooler's vector; empty: none
  std::string embedding_refusal;  ///< why the checkpoint's own text embedding is not supported; empty: it is
  Prompts prompts;                ///< prefixes of texts to embed
  bool strip = false;             ///< trims white space around a text to embed
  Similarity similarity = Similarity::Cosine;  ///< of two embeddings
  SparseEmbedding sparse;

  std::string vocabulary_scores;                  ///< output with logits over the vocabulary of every token (fill-mask)
  std::string next_sentence;                      ///< output with the two logits of a pair of sentences
  std::vector<std::string> labels;                ///< names of the classes; LABEL_0, ... if the checkpoint has none
  std::string rank_activation = "Sigmoid";        ///< activation of a cross-encoder's score: Sigmoid, Identity, ...
  std::shared_ptr<const LogitScore> logit_score;  ///< how a model that generates scores pairs; nullptr: it does not
  std::string problem_type;  ///< regression, multi_label_classification, single_label_classification or ""
  std::optional<image::Processor> images;
  std::optional<policy::ImageTokens> prompt_images;  ///< images among the tokens of a prompt; nothing: there are none
  std::string images_refusal;  ///< why there are none, of a model that could read them; empty: it could not
  bool takes_images = false;   ///< the model has pixel_values; without `images` only as a tensor

  /// Values that a pass gives out per token, by what is asked of it: scores; hidden states; attentions per token and
  /// key.
  int64_t scores = 0, hidden_states = 0, attentions = 0;
  std::string pixels;             ///< input with images under another name than pixel_values; empty: there is none
  std::string image_sizes;        ///< input with the sizes of whole images of any size; empty: there is none
  bool image_axes = false;        ///< tokens of images stand at rows and columns (policy::RotaryAxes)
  int64_t image_tokens = 0;       ///< tokens of an image, or learned queries beside the cells of an image of any size
  int64_t cell_pixels = 0;        ///< side of a cell of an image; 0: all images have one size
  std::string masks;              ///< output with a mask of each object; empty: the model makes none
  std::string audio;              ///< input of samples or filter banks; empty: the model reads no audio
  int64_t audio_stride = 1;       ///< samples (frames of filter banks) per frame
  bool audio_bins_first = false;  ///< filter banks are [rows, bins, frames]
  std::optional<SpeechTokens> speech;                ///< tokens of language, task and timestamps; nothing: none
  Embedding audio_embedding;                         ///< x-vectors, or the states of the frames, whose mean is taken
  std::optional<audio::FeatureExtractor> extractor;  ///< without it audio comes only as a tensor
  std::optional<CtcDecoder> ctc;                     ///< of a model that transcribes by CTC
  std::string ctc_refusal;                           ///< why there is none
  std::string entities;                              ///< input of entities after a text's tokens; empty: none
  std::string mentions;                              ///< input of the tokens that mention each entity
  std::string features;                              ///< input of dense vectors after a text's tokens; empty: none
  std::string targets, hidden;       ///< inputs of tokens to be predicted, and of which see which; empty: none
  std::vector<std::string> vectors;  ///< inputs of dense vectors in place of tokens, parts of one another
  std::string memory;                ///< what names of a memory's inputs begin with, "mems."; empty: none
  int64_t memory_tokens = 0;         ///< that each row attends to beside its own
  int64_t least_rows = 0;            ///< states of a sequence, however short: its latents, or what reads them

  /// Returns whether the model generates text from images, and from audio.
  bool captions_images() const { return task == policy::Task::Generate && takes_images; }
  bool writes_speech() const { return task == policy::Task::Generate && !audio.empty(); }
  /// Returns whether the model supports `route`.
  bool serves(const std::string& route) const;
  /// Returns the supported routes: "POST /v1/embeddings", "POST /forward", ...
  std::vector<std::string> routes() const;
};

/// Reads the capabilities from the resolved model and its folder: config.json (id2label, problem_type),
/// preprocessor_config.json, and those of sentence_transformer.h, sparse_embedding.h and logit_score.h, if they exist.
/// The default text embedding is the mean of all tokens (encoders), the last token (decoders) or the embedding output
/// of the class (text_embeds). Throws Error{ModelUnreadable} for files that cannot be read.
Capabilities read_capabilities(const policy::Model& model, const std::filesystem::path& folder);

}  // namespace pm::server
