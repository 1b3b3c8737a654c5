// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/capabilities.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/server/serving/folder_json.h"
#include "worker/server/serving/logit_score.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Returns the values of id2label in the order of ids. Without id2label it returns num_labels names LABEL_i; the
/// default of num_labels is 2, as in transformers.
std::vector<std::string> labels_of(const json& config) {
  std::vector<std::string> labels;
  if (const json names = value_of(config, "id2label", json()); names.is_object() && !names.empty()) {
    for (size_t i = 0; i < names.size(); ++i)
      labels.push_back(value_of(names, std::to_string(i).c_str(), "LABEL_" + std::to_string(i)));
    return labels;
  }
  const auto count = std::clamp<int64_t>(value_of<int64_t>(config, "num_labels", 2), 1, 1 << 20);
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

/// Reads the files of sentence-transformers, if the folder has them.
void read_sentences(const std::filesystem::path& folder, Capabilities& capabilities) {
  auto read = read_sentence_transformer(folder, capabilities.states, capabilities.states_width);
  if (!read) return;
  capabilities.strip = true;
  if (read->embedding.poolings.empty())
    capabilities.text.normalize = read->embedding.normalize;
  else
    capabilities.text = std::move(read->embedding);
  capabilities.embedding_refusal = read->refusal;
  capabilities.prompts = std::move(read->prompts);
  capabilities.similarity = read->similarity;
  if (read->max_tokens > 0)
    capabilities.positions =
        capabilities.positions > 0 ? std::min(capabilities.positions, read->max_tokens) : read->max_tokens;
}

/// Returns the activation of a CrossEncoder of sentence-transformers, such as "torch.nn.modules.linear.Identity", where
/// its versions have it, the present one first; empty: nowhere.
std::string rank_activation(const std::filesystem::path& folder, const json& config) {
  const json saved = std::filesystem::exists(folder / "modules.json")
                         ? read_json_file(folder / "config_sentence_transformers.json")
                         : json();
  return value_of<std::string>(
      saved, "activation_fn",
      value_of<std::string>(value_of(config, "sentence_transformers", json::object()), "activation_fn",
                            value_of<std::string>(config, "sbert_ce_default_activation_function", "")));
}

/// Reads how a model that generates scores pairs, if the folder says it.
void read_pair_scores(const policy::Model& model, const std::filesystem::path& folder, Capabilities& capabilities) {
  auto read = read_logit_score(model, folder);
  if (!read) return;
  if (const std::string& activation = capabilities.rank_activation; activation != "Sigmoid" && activation != "Identity")
    throw Error(Reason::ModelUnreadable, "config_sentence_transformers.json has the activation_fn " + activation +
                                             "; behind LogitScore only Sigmoid and Identity are supported");
  capabilities.logit_score = std::make_shared<const LogitScore>(*std::move(read));
}

/// Finds the outputs that embed a text and an image.
void find_embeddings(const policy::Model& model, Capabilities& capabilities) {
  const bool several = model.stacks.size() > 1 && !model.stacks.back().input.images,
             crossed = model.kind == policy::ModelKind::EncoderDecoder && several;
  for (const policy::Stack& stack : model.stacks) {
    const policy::Input& input = stack.input;
    if (input.convolutions || input.backbone || input.queries || input.vectors || input.latents ||
        stack.output.image_projector || !stack.joins.empty())
      continue;
    const bool pixels = !stack.input.token, decoder = crossed && stack.layers[0].cross;
    if (decoder) continue;
    const std::string before = !several ? "" : crossed ? "encoder_" : stack.name + "_model_output.";
    const std::string states = before + "last_hidden_state",
                      pooler = stack.output.pooler ? before + "pooler_output" : "";
    Embedding own{states, {model.kind == policy::ModelKind::Decoder ? Pooling::Last : Pooling::Mean}};
    if (pixels) own.poolings = {Pooling::First};
    if (stack.output.pooler && (pixels || stack.output.pooler->pool == policy::Pool::Eot))
      own = {pooler, {}};
    else if (stack.output.pooler && !stack.output.pooler->activation)
      own = {pooler, {}, false};  // DPR: compared by dot products
    for (const policy::Head& head : model.heads)
      if (head.stack == stack.name && head.pool() && head.outputs[0].ends_with("_embeds")) own = {head.outputs[0], {}};
    if (pixels)
      capabilities.image = own;
    else
      capabilities.text = own;
    if (!pixels || !several) {
      capabilities.states = states, capabilities.pooler = pooler;
      capabilities.states_width = stack.width();
    }
  }
}

/// Reads how audio becomes inputs and how it is embedded and spelled.
void read_audio(const policy::Model& model, const std::filesystem::path& folder, Capabilities& capabilities) {
  capabilities.extractor = audio::FeatureExtractor::read(folder);
  const bool spectrograms = capabilities.extractor && capabilities.extractor->features == audio::Features::LogMel;
  if (capabilities.writes_speech() && spectrograms)
    for (const policy::Stack& stack : model.stacks)
      if (stack.input.token) capabilities.speech = SpeechTokens::read(folder, stack.vocab);
  if (model.task == policy::Task::Transcribe) capabilities.ctc = CtcDecoder::find(folder, &capabilities.ctc_refusal);
  if (model.task == policy::Task::Embed && model.kind == policy::ModelKind::Encoder)
    capabilities.audio_embedding = {"last_hidden_state", {Pooling::Mean}};
  for (const policy::Head& head : model.heads)
    if (head.outputs.size() > 1 && head.outputs[1] == "embeddings") capabilities.audio_embedding = {"embeddings"};
}

/// Returns the side in pixels of a cell after so many stages.
int64_t cell_side(const policy::Backbone& backbone, size_t stages) {
  int64_t side = backbone.stem.stride * 2;  // the stem pools by 2
  for (size_t i = 0; i < stages; ++i)
    for (const policy::ResidualBlock& block : backbone.stages[i])
      for (const policy::ImageConvolution& convolution : block.convolutions) side *= convolution.stride;
  return side;
}

/// Throws Error{ModelUnreadable} unless an image processor gives what a tower reads: images of one size, whole ones of
/// any, or patches as large as the tower's in squares as large. Sides of whole images become multiples of the tower's
/// squares.
void fit_processor(image::Processor& processor, const policy::Stack& tower) {
  const auto& grid = tower.input.patch_grid;
  auto& made = processor.patches;
  const auto fits = [&] {
    if (!grid || !made) return !grid && !made;
    const std::vector<int64_t>& weight = tower.input.projection->weight.shape;
    if (!grid->sizes.empty() || made->is_whole()) {
      made->patch = weight[2], made->merge = grid->merge;
      return !grid->sizes.empty() && made->is_whole() && weight[2] == weight[3];
    }
    return made->frames == weight[2] && made->patch == weight[3] && made->patch == weight[4] &&
           made->merge == grid->merge;
  };
  if (!fits())
    throw Error(Reason::ModelUnreadable,
                "the image processor of preprocessor_config.json does not make what the model's tower reads: images of "
                "one size or of any, and the same sizes of patches, frames and squares of patches");
}

/// Reads how the images of prompts are prepared. Where it cannot be, the model's texts are served all the same.
void read_prompt_images(const policy::Model& model, const std::filesystem::path& folder, Capabilities& capabilities) {
  try {
    capabilities.images = image::Processor::read(folder);
    if (capabilities.images) fit_processor(*capabilities.images, *model.stack(capabilities.prompt_images->stack));
    if (!capabilities.images) capabilities.images_refusal = "the checkpoint has no preprocessor_config.json";
  } catch (const Error& error) {
    capabilities.images.reset();
    capabilities.images_refusal = error.what();
  }
}

void count_values(const policy::Model& model, Capabilities& capabilities) {
  for (const policy::Stack& stack : model.stacks) {
    capabilities.hidden_states += stack.hidden * (static_cast<int64_t>(stack.layers.size()) + 1);
    capabilities.scores += stack.width();
    for (const policy::Layer& layer : stack.layers)
      capabilities.attentions +=  // or of co-attention
          (layer.recurrent || !layer.has_mixer ? 0 : layer.attention.heads) + (layer.cross ? layer.cross->heads : 0);
  }
  for (const policy::Head& head : model.heads) capabilities.scores += head.scores();
  for (const policy::Head& head : model.heads) {
    const auto* masks = head.as<policy::MasksSpec>();
    const policy::Stack *cells = masks ? model.stack(masks->cells) : nullptr, *queries = model.stack(head.stack);
    if (!cells || !cells->input.backbone || !queries || !queries->input.queries) continue;
    capabilities.masks = head.outputs[0];
    const policy::Backbone& backbone = *cells->input.backbone;
    const int64_t finer = cell_side(backbone, backbone.stages.size()) / cell_side(backbone, 1);
    capabilities.scores += queries->input.queries->shape[0] * finer * finer;  // masks of the cells of the first stage
  }
}

}  // namespace

Capabilities read_capabilities(const policy::Model& model, const std::filesystem::path& folder) {
  Capabilities capabilities;
  capabilities.architecture = model.architecture;
  capabilities.task = model.task;
  capabilities.kind = model.kind;
  capabilities.also_generates = model.generates() && model.task != policy::Task::Generate;
  capabilities.retrieves = model.retrieval.has_value();
  capabilities.takes_text = false;
  for (const policy::Stack& stack : model.stacks) {
    if (const auto& convolutions = stack.input.convolutions) {
      capabilities.audio = convolutions->input;
      capabilities.audio_bins_first = convolutions->bins_first;
      for (const policy::Convolution& layer : convolutions->layers) capabilities.audio_stride *= layer.stride;
      continue;
    }
    if (!stack.joins.empty() || stack.output.image_projector) continue;
    if (const auto& images = stack.input.images) {
      capabilities.prompt_images = *images;
      capabilities.image_tokens = model.stack(images->stack)->positions;
      capabilities.image_axes = policy::rotary_axes(stack) > 0;
      const policy::Input& tower = model.stack(images->stack)->input;
      if (tower.patch_grid && !tower.patch_grid->sizes.empty()) {
        capabilities.image_sizes = tower.patch_grid->sizes;
        capabilities.cell_pixels = tower.projection->weight.shape[2];
      }
    }
    capabilities.least_rows = std::max(capabilities.least_rows, policy::least_states(stack));
    if (const auto& queries = stack.input.queries) {  // of each image that another stack reads
      capabilities.image_tokens = queries->shape[0];
      continue;
    }
    if (stack.input.vectors) {
      for (const policy::Vectors::Part& part : stack.input.vectors->parts) capabilities.vectors.push_back(part.input);
      continue;
    }
    if (const auto& backbone = stack.input.backbone) {
      capabilities.takes_images = true;
      capabilities.cell_pixels = cell_side(*backbone, backbone->stages.size());
      continue;
    }
    if (stack.input.pixels) {  // of which latents make states
      capabilities.takes_images = true;
      capabilities.image_tokens = capabilities.least_rows;
      capabilities.pixels = stack.input.pixels->input;
      continue;
    }
    if (!stack.input.token) {
      capabilities.takes_images = true;
      capabilities.image_tokens = stack.positions;
      continue;
    }
    capabilities.takes_text = true;
    if (const auto& targets = stack.input.targets)
      capabilities.targets = targets->mapping, capabilities.hidden = targets->hidden;
    if (stack.input.features) capabilities.features = stack.input.features->input;
    if (stack.memory) {
      capabilities.memory = stack.memory->input + ".";
      capabilities.memory_tokens = stack.memory->length;
    }
    if (stack.input.entities) {
      capabilities.entities = stack.input.entities->input;
      capabilities.mentions = stack.input.entities->mentions;
    }
    if (stack.positions > 0)
      capabilities.positions =
          capabilities.positions > 0 ? std::min(capabilities.positions, stack.positions) : stack.positions;
    for (const policy::IndexTable& table : stack.input.tables)
      capabilities.token_types = capabilities.token_types || (table.input == "token_type_ids" && table.column < 0);
  }
  find_embeddings(model, capabilities);
  count_values(model, capabilities);
  for (const policy::Head& head : model.heads) {
    if (model.task == policy::Task::FillMask && head.as<policy::LogitsSpec>() && !head.entities)
      capabilities.vocabulary_scores = head.outputs[0];
    if (model.task == policy::Task::NextSentence ||
        (head.outputs[0] == "seq_relationship_logits" && capabilities.features.empty()))
      capabilities.next_sentence = head.outputs[0];
  }
  const json config = read_json_file(folder / "config.json");
  capabilities.labels = labels_of(config);
  const json names = value_of(read_json_file(folder / "tokenizer_config.json"), "model_input_names", json());
  if (names.is_array() && std::find(names.begin(), names.end(), "token_type_ids") == names.end())
    capabilities.token_types = false;
  if (const std::string activation = rank_activation(folder, config); !activation.empty())
    capabilities.rank_activation = activation.substr(activation.rfind('.') + 1);
  capabilities.problem_type = value_of<std::string>(config, "problem_type", "");
  read_pair_scores(model, folder, capabilities);
  if (capabilities.takes_text && !capabilities.takes_images) {
    capabilities.sparse =
        read_sparse_embedding(folder, capabilities.vocabulary_scores,
                              model.task == policy::Task::Embed ? capabilities.states : "", capabilities.states_width);
    const bool scores = !capabilities.vocabulary_scores.empty() && !capabilities.sparse.output.empty();
    // of a SparseEncoder, and of LogitScore, modules.json says nothing about vectors
    if (!scores && !capabilities.logit_score) read_sentences(folder, capabilities);
  }
  capabilities.images_refusal = model.images_refused;
  if (capabilities.takes_images) capabilities.images = image::Processor::read(folder);
  if (capabilities.images && capabilities.images->patches)
    throw Error(Reason::ModelUnreadable,
                "preprocessor_config.json has an image processor that makes patches of images of any size, and " +
                    model.architecture + " reads whole images");
  if (capabilities.prompt_images) read_prompt_images(model, folder, capabilities);
  if (!capabilities.audio.empty()) read_audio(model, folder, capabilities);
  return capabilities;
}

bool Capabilities::serves(const std::string& route) const {
  const bool answers = task == policy::Task::Generate && !captions_images() && !writes_speech(),
             generates = answers || also_generates;
  if (route == "/forward") return true;
  if (route == "/v1/chat/completions") return generates && !retrieves;  // a conversation is no question
  if (route.starts_with("/v1/messages") || route.starts_with("/v1/responses")) return serves("/v1/chat/completions");
  if (route == "/v1/completions" || route == "/generate_text/*") return generates;
  if (route == "/generate") return generates || captions_images();
  if (route == "/v1/audio/transcriptions") return task == policy::Task::Transcribe || writes_speech();
  if (route == "/v1/audio/translations") return speech && speech->translates();
  if (route == "/v1/audio/classifications") return task == policy::Task::ClassifyAudio;
  if (route == "/embed") return !audio_embedding.output.empty();
  if (route == "/detect") return task == policy::Task::DetectObjects;
  if (route == "/segment") return task == policy::Task::DetectObjects && !masks.empty();
  if (route == "/v1/embeddings" && (!audio.empty() || cell_pixels > 0 || retrieves)) return false;
  if (route == "/v1/embeddings")
    return answers || task == policy::Task::Embed || task == policy::Task::Similarity || task == policy::Task::FillMask;
  if (route == "/similarity") return task == policy::Task::Similarity || (takes_text && serves("/v1/embeddings"));
  if (route == "/rerank" || route == "/v1/rerank")
    return logit_score || (task == policy::Task::Classify && labels.size() == 1) ||
           (task == policy::Task::Embed && takes_text && audio.empty());
  if (route == "/embed_sparse") return sparse.exists() || !sparse.refusal.empty();
  if (route == "/score" || route == "/v1/score") return serves("/rerank");
  if (route == "/tokenize" || route == "/detokenize") return takes_text;
  if (route == "/fill-mask") return task == policy::Task::FillMask;
  if (route == "/question-answering") return task == policy::Task::QuestionAnswering;
  if (route == "/classify")
    return task == policy::Task::Classify || task == policy::Task::ClassifyTokens ||
           task == policy::Task::ClassifyImages || task == policy::Task::MultipleChoice || !next_sentence.empty();
  return true;
}

std::vector<std::string> Capabilities::routes() const {
  std::vector<std::string> all;
  for (const char* route : {"POST /v1/completions",
                            "POST /v1/chat/completions",
                            "POST /v1/messages",
                            "POST /v1/messages/count_tokens",
                            "POST /v1/responses",
                            "POST /v1/responses/input_tokens",
                            "GET /v1/responses/*",
                            "GET /v1/responses/*/input_items",
                            "DELETE /v1/responses/*",
                            "POST /generate",
                            "GET /generate_text/*",
                            "POST /v1/embeddings",
                            "POST /embed",
                            "POST /v1/audio/transcriptions",
                            "POST /v1/audio/translations",
                            "POST /v1/audio/classifications",
                            "POST /classify",
                            "POST /detect",
                            "POST /segment",
                            "POST /fill-mask",
                            "POST /question-answering",
                            "POST /similarity",
                            "POST /rerank",
                            "POST /v1/rerank",
                            "POST /embed_sparse",
                            "POST /score",
                            "POST /v1/score",
                            "POST /forward",
                            "POST /tokenize",
                            "POST /detokenize"}) {
    const std::string text = route;
    if (serves(text.substr(text.find(' ') + 1))) all.push_back(text);
  }
  return all;
}

}  // namespace pm::server
