// SPDX-License-Identifier: Apache-2.0
// The subcommand generate: it generates from texts or token ids on the command line.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "worker/base/error.h"
#include "worker/cli/generation_flags.h"
#include "worker/cli/media_files.h"
#include "worker/cli/offline_inference.h"
#include "worker/cli/options.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/generation/generation_params.h"
#include "worker/server/generation/openai_reply.h"
#include "worker/server/generation/stop_matcher.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::cli {

namespace {

struct GenerateOptions : ModelOptions {
  std::vector<std::string> prompts, id_lists, images, audio;
  std::string inputs;
  engine::ParameterValues generation;
  std::vector<std::string> bad_words, bad_word_ids, biases, end_tokens, stops;
  bool json = false;
};

std::vector<int32_t> ids_of(const std::string& list, const std::string& option = "--input-ids") {
  std::vector<int32_t> ids;
  std::stringstream in(list);
  for (std::string item; std::getline(in, item, ',');) {
    try {
      size_t used = 0;
      ids.push_back(std::stoi(item, &used));
      if (used != item.size()) throw std::invalid_argument(item);
    } catch (const std::exception&) {
      throw Error(Reason::Usage,
                  option + " \"" + list + "\": \"" + item + "\" is not a token id; write e.g. 464,3290,318");
    }
  }
  return ids;
}

std::pair<int32_t, double> bias_of(const std::string& text) {
  try {
    const size_t equals = text.find('=');
    size_t id_end = 0, end = 0;
    const int32_t id = std::stoi(text, &id_end);
    const double bias = std::stod(text.substr(equals + 1), &end);
    const bool whole = id_end == equals && equals + 1 + end == text.size();
    if (whole && id >= 0 && std::abs(bias) <= server::max_logit_bias) return {id, bias};
  } catch (const std::exception&) {
  }
  throw Error(Reason::Usage,
              "--logit-bias \"" + text + "\" is not a token id and a number from -100 to 100; write e.g. 50256=-100");
}

/// Returns the parameters of the command line, then those of generation_config.json, then Hugging Face's.
engine::GenerationConfig generation_of(const GenerateOptions& options, const std::filesystem::path& folder,
                                       const std::optional<Tokenizer>& tokenizer) {
  server::GenerationDefaults defaults = server::read_generation_defaults(folder);
  if (!defaults.has_top_k) defaults.config.sampling.top_k = engine::default_top_k;
  engine::GenerationConfig generation = generation_config(options.generation, defaults.config);
  if (!options.bad_words.empty() || !options.bad_word_ids.empty()) generation.sampling.bad_words.clear();
  for (const std::string& list : options.bad_word_ids)
    generation.sampling.bad_words.push_back(ids_of(list, "--bad-words-ids"));
  if (!options.bad_words.empty()) {
    for (auto& ids : server::word_ids(options.bad_words, *tokenizer))
      generation.sampling.bad_words.push_back(std::move(ids));
  }
  for (const std::string& bias : options.biases) generation.sampling.logit_bias.push_back(bias_of(bias));
  for (const std::string& list : options.end_tokens) {
    const std::vector<int32_t> ids = ids_of(list, "--eos-token-id");
    if (!generation.eos) generation.eos.emplace();
    generation.eos->insert(generation.eos->end(), ids.begin(), ids.end());
  }
  if (!options.stops.empty() && generation.search.num_beams > 1)
    throw Error(Reason::Usage, "--stop and " + std::to_string(generation.search.num_beams) +
                                   " beams: stop strings need --num-beams 1");
  return generation;
}

/// Returns the text of a sequence. It ends before the first stop string, and the sequence with the token that completes
/// it.
std::string text_of(GeneratedSequence& sequence, const Tokenizer& tokenizer, const std::vector<std::string>& stops) {
  if (stops.empty()) return tokenizer.decode(sequence.tokens);
  const std::span<const int32_t> before(sequence.tokens.data(), sequence.start);
  Detokenizer detokenizer(tokenizer, before);
  server::StopMatcher matcher(stops);
  std::string answer;
  for (size_t i = sequence.start; i < sequence.tokens.size() && !matcher.hit(); ++i) {
    answer += matcher.push(detokenizer.push(sequence.tokens[i]));
    if (matcher.hit()) sequence.tokens.resize(i + 1);
  }
  if (!matcher.hit()) answer += matcher.push(detokenizer.flush());
  return matcher.hit() ? tokenizer.decode(before) + answer : tokenizer.decode(sequence.tokens);
}

/// Returns the prompts of all options, which have to be of the kind that the model reads.
std::vector<Prompt> all_prompts(const GenerateOptions& options, const Setup& setup,
                                const std::optional<Tokenizer>& tokenizer) {
  const std::filesystem::path folder = setup.checkpoint.folder();
  std::vector<Prompt> prompts, media = image_prompts(options.images, folder);
  for (Prompt& prompt : audio_prompts(options.audio, folder)) media.push_back(std::move(prompt));
  if (!options.inputs.empty())
    for (Prompt& prompt : prompts_of(read_tensors(options.inputs))) media.push_back(std::move(prompt));
  for (const std::string& prompt : options.prompts) prompts.push_back({tokenizer->encode(prompt), {}});
  for (const std::string& list : options.id_lists) prompts.push_back({ids_of(list), {}});
  const policy::Stack* source = models::Model::source_stack(setup.model);
  const bool reads_media = source && source->input.reads_media();
  if ((reads_media ? media : prompts).empty() || !(reads_media ? prompts : media).empty())
    throw Error(Reason::Usage, reads_media
                                   ? setup.model.architecture +
                                         " generates from images or audio; use --image, "
                                         "--audio or --inputs, and no text"
                                   : "no prompt was given, or one that is no text; use --prompt or --input-ids");
  return reads_media ? media : prompts;
}

/// Returns whether each answer has a score without beam search too.
bool ranks_answers(const policy::Model& model) {
  return model.retrieval && model.retrieval->marginal == policy::Marginal::Sequence;
}

int generate(const GenerateOptions& options) {
  const Setup setup = prepare(options);
  std::string why;
  std::optional<server::Retriever> retriever;
  if (setup.model.retrieval) retriever.emplace(*setup.model.retrieval, setup.checkpoint.folder());
  const std::optional<Tokenizer> tokenizer =
      retriever ? retriever->generator_tokenizer() : Tokenizer::find(setup.checkpoint.folder(), &why);
  if (!tokenizer) {
    if (!options.prompts.empty())
      throw Error(Reason::Usage, "--prompt needs a tokenizer, and " + why + "; give --input-ids");
    if (!options.bad_words.empty())
      throw Error(Reason::Usage, "--bad-words needs a tokenizer, and " + why + "; give --bad-words-ids");
    if (!options.stops.empty())
      throw Error(Reason::Usage, "--stop needs a tokenizer, and " + why + "; give --eos-token-id");
  }
  std::vector<Prompt> prompts = all_prompts(options, setup, retriever ? retriever->question_tokenizer() : tokenizer);
  const size_t adapters = options.adapters.size();
  if (adapters > 1 && adapters != prompts.size())
    throw Error(Reason::Usage, std::to_string(adapters) + " times --adapter for " + std::to_string(prompts.size()) +
                                   " prompts; give one for all, or one for each");
  for (size_t i = 0; adapters > 0 && i < prompts.size(); ++i)
    prompts[i].adapter = options.adapters[adapters > 1 ? i : 0];
  const engine::GenerationConfig generation = generation_of(options, setup.checkpoint.folder(), tokenizer);
  const int64_t blocks = generation_blocks(setup.model, prompts, generation);
  const auto group = engine::local_rank_group(setup.group(blocks));
  std::vector<std::vector<int32_t>> sequences;
  std::vector<double> scores;
  nlohmann::json texts = nlohmann::json::array(), passages = nlohmann::json::array();
  for (GeneratedSequence& sequence : run_generation(*group, setup.model, setup.plan, blocks, prompts, generation,
                                                    retriever ? &*retriever : nullptr, setup.adapters)) {
    if (sequence.passages) passages.push_back(server::passages_json(*sequence.passages));
    if (tokenizer) texts.push_back(text_of(sequence, *tokenizer, options.stops));
    sequences.push_back(std::move(sequence.tokens));
    scores.push_back(sequence.score);
  }
  if (options.json) {
    nlohmann::json out{{"text", texts}, {"sequences", sequences}};
    if (generation.search.num_beams > 1 || ranks_answers(setup.model)) out["scores"] = scores;
    if (retriever) out["passages"] = passages;
    std::cout << out.dump() << "\n";
  } else {
    for (size_t row = 0; row < sequences.size(); ++row) {
      std::cout << (tokenizer ? texts[row].get<std::string>() : nlohmann::json(sequences[row]).dump()) << "\n";
    }
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Program& program) {
  auto* subcommand =
      app.add_subcommand("generate", "Generates from prompts; parameters have Hugging Face's names and meanings");
  auto options = std::make_shared<GenerateOptions>();
  options->add_to(*subcommand);
  subcommand->add_option("--prompt", options->prompts, "Text to continue; may be given several times");
  subcommand->add_option("--input-ids", options->id_lists,
                         "Token ids to continue, e.g. 464,3290,318; may be given several times");
  subcommand->add_option(
      "--image", options->images,
      "Image to generate from (PNG, JPEG or WebP), of a model that reads images; may be given several times");
  subcommand->add_option("--audio", options->audio,
                         "Audio to generate from (WAV, FLAC, OGG or MP3), of a model that reads audio; may be given "
                         "several times");
  subcommand->add_option("--inputs", options->inputs,
                         "safetensors file with pixel_values, input_values or input_features; a prompt for each row");
  add_generation_flags(*subcommand, options->generation);
  subcommand->add_option("--bad-words", options->bad_words,
                         "Text that must not be generated; may be given several times");
  subcommand->add_option("--bad-words-ids", options->bad_word_ids,
                         "Sequence of token ids that must not be generated, e.g. 464,3290; may be given several times");
  subcommand->add_option("--logit-bias", options->biases,
                         "Number that is added to the logits of a token, e.g. 50256=-100; may be given several times");
  subcommand->add_option("--eos-token-id", options->end_tokens,
                         "Ids of end tokens in place of the model's, e.g. 2 or 2,32000; may be given several times");
  subcommand
      ->add_option("--stop,--stop-strings", options->stops,
                   "Text before which an answer ends; may be given several times")
      ->check([](const std::string& text) { return text.empty() ? std::string("a stop string is empty") : ""; });
  subcommand
      ->add_option(
          "--adapter", options->adapters,
          "Folder of a LoRA adapter (PEFT) that answers; once for all prompts, or once for each, in order, where "
          "an empty text is the base model")
      ->allow_extra_args(false);
  subcommand->add_flag("--json", options->json,
                       R"(Prints {"text": [...], "sequences": [[ids]]}, with beams also "scores", of a model that )"
                       R"(retrieves also "passages")");
  subcommand->callback([options, &program] { program.code = generate(*options); });
}

}  // namespace pm::cli
