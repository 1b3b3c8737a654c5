// What a model can be asked for beside generation, and how its checkpoint wants that to be done.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "worker/image/processor.h"
#include "worker/policy/model.h"

namespace pm::server {

/// How one state of many tokens becomes a vector. None: the output is a vector already.
enum class Pooling : uint8_t { None, Mean, MeanSqrt, WeightedMean, Max, First, Last };

/// Where a vector for a text or an image comes from. Empty `output`: nowhere.
struct Embedding {
  std::string output;                ///< of the forward pass: last_hidden_state, pooler_output, text_embeds, ...
  Pooling pooling = Pooling::None;
  bool normalize = true;             ///< to length 1
};

struct Abilities {
  std::string architecture, task = "generate", topology = "decoder";
  int64_t positions = 0;             ///< tokens of one input; 0: no limit of its own
  bool token_types = false;          ///< whether it takes token_type_ids
  bool texts = true;                 ///< whether it takes input_ids

  Embedding text, image;
  std::string states;                ///< output with every token's state, for other poolings
  std::string pooler;                ///< output with the pooler's vector; empty: it has none
  std::string no_embedding;          ///< why this checkpoint's own way to embed texts is not served; empty: it is
  std::string prefix;                ///< put before every text to embed
  bool strip = false;                ///< white space around a text is dropped before it is embedded

  std::string vocabulary_scores;     ///< output with logits over the vocabulary of every token (fill-mask)
  std::string next_sentence;         ///< output with the two logits of a pair of sentences
  std::vector<std::string> labels;   ///< of the classes; LABEL_0, ... where the checkpoint names none
  std::string rank_activation = "Sigmoid";   ///< of a cross-encoder's score, as its config.json names it: Sigmoid, Identity, ...
  std::string problem_type;          ///< regression, multi_label_classification, single_label_classification or ""
  std::optional<image::Processor> images;
  bool takes_images = false;         ///< pixel_values; without `images` only as a tensor

  /// Values that a pass gives out per token, by what is asked of it: scores; hidden states; attentions per token and key.
  int64_t scores = 0, hidden_states = 0, attentions = 0;
  int64_t image_tokens = 0;          ///< that an image becomes
  std::string features;              ///< input of dense vectors that stand behind a text's tokens; empty: none

  /// Whether POST or GET `route` is for this model.
  bool serves(const std::string& route) const;
  /// The routes it serves: "POST /v1/embeddings", "POST /forward", ...
  std::vector<std::string> routes() const;
};

/// From the resolved model and its folder: config.json (id2label, problem_type), preprocessor_config.json, sentence-transformers' modules.json,
/// 1_Pooling/config.json, sentence_bert_config.json and config_sentence_transformers.json where they are there. Texts are otherwise embedded by
/// the mean of all tokens (encoders), the last token (decoders) or what the class itself gives (text_embeds). Throws Error{Model,
/// "ModelUnreadable"} for files that cannot be read.
Abilities read_abilities(const policy::Model& model, const std::filesystem::path& folder);

}  // namespace pm::server
